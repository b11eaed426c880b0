"""Rules of secrets: where they may stand, and under which names.

No fault shows a value, not even one that stands in the file in plain.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from infra.faults import Fault
from infra.hidden import SECTION, Hidden
from infra.names import VARIABLE, VARIABLE_RULE
from infra.programs import TAKEN_PREFIXES, TAKEN_VARIABLES

_NOT_SHOWN = "something else, which is not shown here"
_SET = f"pulumi config set --secret --path 'tpu-multislice:{SECTION}.NAME'"
_REVOKE = "if it stood in the file in plain, revoke it: it is in the file's history"


def misplaced(raw: Mapping[str, object]) -> Iterator[Fault]:
    """Secrets in any section but their own; `raw` is the stack file's values by section."""
    for section, value in raw.items():
        if section != SECTION:
            for path in _marks(section, value):
                yield Fault(
                    path,
                    "a plain value, since plans, bills and the job's files show it",
                    "a Pulumi secret",
                    f"set it in plain (pulumi config set --plaintext); what the job is to get in secret: {_SET}",
                )


def check(written: object) -> Iterator[Fault]:
    """Faults of the section `secrets`."""
    if not isinstance(written, Mapping):
        yield Fault(SECTION, "environment variables by name, each a Pulumi secret", _NOT_SHOWN, f"{_SET}; {_REVOKE}")
        return
    for name, value in ((str(key), item) for key, item in cast(Mapping[object, object], written).items()):
        path = f"{SECTION}.{name}"
        if not VARIABLE.fullmatch(name):
            yield Fault(path, VARIABLE_RULE, repr(name), "rename it")
        elif name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES):
            expected = "a variable that neither GKE nor the trainer's start-up sets or reads"
            yield Fault(path, expected, repr(name), "rename it, and tell the program that needs it the other name")
        if not isinstance(value, Hidden):
            fix = f"{_SET.replace('NAME', name)}; {_REVOKE}"
            yield Fault(path, "a text that Pulumi keeps as a secret", _NOT_SHOWN, fix)


def _marks(path: str, value: object) -> Iterator[str]:
    match value:
        case Hidden():
            yield path
        case dict():
            for key, item in cast(dict[str, object], value).items():
                yield from _marks(f"{path}.{key}", item)
        case list():
            for index, item in enumerate(cast(list[object], value)):
                yield from _marks(f"{path}[{index}]", item)
        case _:
            return

"""What a host's exit code does to its job, read from the JobSet that `dev` renders, and what commands end with."""

import re
from functools import cache
from typing import Any

import yaml

from cli.answer import INTERRUPTED, UNREAD
from tests.documents.command_line_reference import Command, commands
from tests.documents.model_fields import enum_meanings, one_line
from tests.documents.pages import MADE, ROOT
from tests.infra.job_failure import action
from workloads.spec import ExitCode

_HEAD = f"""# Exit codes

{MADE.format("tests/documents/exit_codes_reference.py")}

## Of a host of a job

All hosts exit with the code of the host that failed first ([why a job ended](metrics.md#why-a-job-ended)). A restart
is one of the whole job, on all its slices; one that counts uses up `job.max_restarts`.

| code | name | means | what JobSet does |
|---|---|---|---|
"""
_REST = """| any other, such as 137 | | killed, or ended by a signal | restarts it; counts |
| any, of a pod that was evicted, preempted or whose node went | | unless its code fails the job at once | {disrupted} |

"""
_ACTIONS = {
    "FailJobSet": "fails it at once",
    "RestartJobSet": "restarts it; counts",
    "RestartJobSetAndIgnoreMaxRestarts": "restarts it; does not count",
}
_COMMANDS = f"""## Of commands

| status | means |
|---|---|
| 0 | done, and the answer is not no |
| 1 | no answer, or not done: the message says what was expected, what came, and what to do next |
| 2 | of a command that answers: the answer is no; see below |
| {INTERRUPTED} | Ctrl-C |
| {UNREAD} | whoever reads the answer has gone, such as `head` |

`make` itself ends with 2 whenever its command did not end with 0.

| command | status | means |
|---|---|---|
"""
EVERY_COMMAND = {0: "done", 1: "no answer, and why"}
"""What holds where a command's help says nothing else."""


def reference() -> str:
    """The whole text."""
    parts = [_HEAD, *map(_row, ExitCode)]
    parts.append(_REST.format(disrupted=_ACTIONS[action(_jobset(), 137, disrupted=True)]))
    return "".join([*parts, _COMMANDS, *map(_statuses, commands())])


@cache
def _jobset() -> Any:
    objects = list(yaml.safe_load_all((ROOT / "tests" / "golden" / "dev.yaml").read_text()))
    found = [each for each in _mappings(objects) if each.get("kind") == "JobSet" and "spec" in each]
    return found[0]


def _mappings(value: Any) -> list[Any]:
    """All mappings in it, at any depth."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    below = [found for child in children for found in _mappings(child)]
    return [value, *below] if isinstance(value, dict) else below


def _row(code: ExitCode) -> str:
    # What follows is said by the last column, which is read from the JobSet.
    meaning = re.split(r": (?:restart|fail)", one_line(enum_meanings(ExitCode).get(code.name, "")))[0].removesuffix(".")
    follows = (
        "counts the slice as done; the job is when all are"
        if code == ExitCode.DONE
        else _ACTIONS[action(_jobset(), code)]
    )
    return f"| {code:d} | `{code.name}` | {meaning or 'trained to the last step'} | {follows} |\n"


def _statuses(command: Command) -> str:
    told = command.exit_statuses.items()
    return "".join(f"| `multislice {command.words}` | {number} | {meaning} |\n" for number, meaning in told)

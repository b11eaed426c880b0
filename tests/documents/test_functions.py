"""docs/how-to/functions.md says what the package does."""

import inspect
import re

import multislice
from examples.__main__ import NAMES
from multislice import errors
from tests.documents.pages import DOCS, blocks

TEXT = (DOCS / "how-to" / "functions.md").read_text()


def test_every_argument_of_run_is_told() -> None:
    table = TEXT.split("| argument of `run`")[1].split("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert told == set(inspect.signature(multislice.run).parameters)


def test_every_error_is_told_and_exported() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    raised = {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__}
    table = TEXT.split("| exception | raised when |")[1].split("\n\n")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert {*told, "CallError", "HostTraceback"} == raised
    assert raised <= set(multislice.__all__)


def test_every_example_is_told() -> None:
    told = TEXT.split("Each function of `examples/rules.py`")[1].split("\n")[0]
    assert {*NAMES} <= set(re.findall(r"`(\w+)`", told))


def test_the_handle_and_the_functions_are_real() -> None:
    handle = TEXT.split("A handle has ")[1].split(". ")[0]
    for name in re.findall(r"`(\w+)", handle):
        assert hasattr(multislice.Call, name) or name in multislice.Call.__dataclass_fields__


def test_the_example_with_checkpoints_is_a_function() -> None:
    # tests/sandboxes/test_documented_commands.py calls the first example.
    _, shown = blocks(TEXT, "python")
    around: dict[str, object] = {"multislice": multislice}
    exec(shown, around)
    assert isinstance(around["train"], multislice.Function)

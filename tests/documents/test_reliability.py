"""docs/reliability.md: what people wrote there is what catalogue and trainer say, the rest is what was measured."""

import ast
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from chaos import report
from chaos.__main__ import parser
from chaos.fault import Expected, Fault
from chaos.faults import CATALOGUE
from chaos.faults.files import KINDS
from chaos.field import BETWEEN_SAVES, SAVE_EVERY, STEPS
from chaos.result import LongRun, Result, demanded, from_json
from tests.chain.test_chaos import QUICK
from tests.chaos.known import HELD, LOST
from tests.chaos.test_report import RUN
from tests.documents import reliability_reference as reference
from tests.infra.one_job import submitted
from tests.infra.recording import stack_values
from workloads.report.history import KILLED, LAST
from workloads.spec import ExitCode

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reliability.md"
MEASURED = ROOT / "docs" / "chaos"
"""`results.json` and `long_run.json` come from a run of the catalogue; the pictures beside them are made of these."""
EMPTY = "".join(f"{begin}{end}" for begin, end in (reference.CODES, reference.FAULTS, reference.LONG_RUN))
KNOWN = {fault.name: fault for fault in CATALOGUE}
UPDATES = os.environ.get("UPDATE_GOLDEN") == "1"


@cache
def written() -> str:
    """What people wrote."""
    return reference.without_made_parts(DOCUMENT.read_text())


def section(title: str) -> str:
    return written().partition(f"## {title}\n")[2].partition("\n## ")[0]


def endings() -> dict[str, dict[str, str]]:
    """What is said of each way to stop, by its title and the word that the line begins with."""
    parts = re.split(r"^### (.*)\n", section("When a job stops"), flags=re.MULTILINE)[1:]
    return {
        title: dict(re.findall(r"^- \*\*(.*?)\*\* (.*)$", body, re.MULTILINE))
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def names(text: str) -> list[str]:
    return [name for name in re.findall(r"`([a-z-]+)`", text) if name in KNOWN]


def measured() -> tuple[Result, ...]:
    return from_json((MEASURED / "results.json").read_text())


def long_run() -> LongRun:
    return LongRun.model_validate_json((MEASURED / "long_run.json").read_text())


def require(path: Path, made: str) -> None:
    """The file is as it is made from what was measured; with UPDATE_GOLDEN=1 it becomes so."""
    if UPDATES:
        path.write_text(made)
    assert path.read_text() == made, f"{path.name}: run UPDATE_GOLDEN=1 pytest tests/documents/test_reliability.py"


def test_exit_codes_are_those_of_the_enum() -> None:
    require(DOCUMENT, reference.with_codes(DOCUMENT.read_text()))


def test_the_table_of_faults_and_their_picture_are_made_of_what_was_measured() -> None:
    require(MEASURED / "faults.svg", report.picture(measured()))
    require(DOCUMENT, reference.with_faults(DOCUMENT.read_text(), measured()))


def test_the_long_run_and_its_picture_are_made_of_what_was_measured() -> None:
    require(MEASURED / "long_run.svg", report.long_run_picture(long_run()))
    require(DOCUMENT, reference.with_long_run(DOCUMENT.read_text(), long_run()))


def test_every_fault_of_the_catalogue_was_measured_as_it_stands_there_and_holds() -> None:
    found = [(result.fault, result.what, result.demanded, result.broken) for result in measured()]
    assert found == [(each.name, each.what, demanded(each.expected, SAVE_EVERY), ()) for each in CATALOGUE]


def test_the_long_run_is_that_of_the_command_and_holds() -> None:
    (command,) = [options for options in map(parser().parse_args, commands()) if options.random]
    run = long_run()
    assert (run.seed, run.steps) == (command.seed, command.steps)
    assert run.result.what == f"{len(run.strikes)} random faults in {command.random:g} minutes"
    assert run.result.broken == ()


def test_every_job_ended_as_its_section_says() -> None:
    results = {result.fault: result for result in measured()}
    for title, lines in endings().items():
        for name in names(lines["Tried"]):
            first = results[name].endings[:1]
            assert set(first) <= {*codes(lines["Ends as"]), ExitCode.DONE.name}, f"{name} in {title!r}"


def test_made_parts_show_what_held_and_what_did_not() -> None:
    made = reference.with_faults(EMPTY, (HELD, LOST))
    assert "Of 2 faults 1 hold, at `abc1234`, in 5 minutes." in made
    assert "At most 9 steps were done again (`host-stopped`)." in made
    assert "The 1 jobs that had to start again and went on did so after 31 s in the median, 31 s at most" in made
    assert "\n### Hosts (2)\n\n| fault |" in made
    assert report.markdown((HELD, LOST)) in made
    assert reference.without_made_parts(made) == EMPTY


def test_made_parts_replace_those_that_were_there() -> None:
    before = reference.with_long_run(reference.with_faults(EMPTY, (HELD,)), RUN)
    assert reference.with_faults(before, (HELD,)) == before
    assert "goodput 75.0 %" in before
    assert reference.without_made_parts(before) == EMPTY


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="once each"):
        reference.with_faults("# Faults\n", (HELD,))


def test_every_exit_code_has_a_row() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ", reference.with_codes(EMPTY), re.MULTILINE)
    assert {name: int(code) for code, name in rows} == {
        code.name: code for code in ExitCode if code is not ExitCode.DONE
    }


def commands() -> Iterator[list[str]]:
    """Arguments of `python -m chaos` in every command that is shown."""
    (shown,) = re.findall(r"```sh\n(.*?)```", written(), re.DOTALL)
    for line in shown.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            yield shlex.split(words[2].removeprefix("ARGS=")) if len(words) > 2 else []
        else:
            assert words[:3] == [".venv/bin/python", "-m", "chaos"]
            yield words[3:]


def test_every_command_is_one() -> None:
    asked = [parser().parse_args(arguments) for arguments in commands()]
    assert {name for options in asked for name in options.faults} <= set(KNOWN)
    assert [options.list for options in asked] == [False, False, True, False]


def test_the_faults_that_are_struck_in_every_test_are_as_written() -> None:
    assert tuple(names(written().partition("`make test`")[2].partition("\n")[0])) == QUICK


def test_the_job_that_is_struck_is_as_written() -> None:
    slices = submitted(stack_values("local")).slices
    assert (slices.count, slices.hosts) == (2, 2)
    assert "two slices of two hosts" in written()
    assert f"{STEPS} steps, saved every {SAVE_EVERY}. " in written()
    assert f"struck after step {BETWEEN_SAVES}, " in written()
    assert f"in {len(CATALOGUE)} ways" in written()


def test_what_some_entries_demand_instead_is_as_written() -> None:
    lines = dict(re.findall(r"^- ([\w ]+): (.*)$", section("What must hold"), re.MULTILINE))
    assert {title: set(names(text)) for title, text in lines.items()} == {
        "Losses": {each.name for each in CATALOGUE if each.expected.loss_tolerance or not each.expected.same_data},
        "Lost work": {each.name for each in CATALOGUE if (each.expected.lost_steps or 0) > SAVE_EVERY},
        "Wrong losses": {each.name for each in CATALOGUE if each.expected.spoiled_from is not None},
        "Record": {each.name for each in CATALOGUE if _restarts(each) and not _tells(each)},
        "Recovery": {each.name for each in CATALOGUE if _slow(each)},
    }
    told = {seconds for each in CATALOGUE if _slow(each) for seconds in [each.expected.recovery_seconds]}
    assert {float(seconds) for seconds in re.findall(r"(\d+) s\b", lines["Recovery"])} == told
    assert f"| recovery | {Expected().recovery_seconds:.0f} s after the strike at most" in written()


def _restarts(fault: Fault) -> bool:
    return bool(fault.expected.endings) and fault.expected.terminal == "Completed"


def _tells(fault: Fault) -> bool:
    return bool(fault.expected.culprit or fault.expected.event)


def _slow(fault: Fault) -> bool:
    return fault.expected.recovery_seconds != Expected().recovery_seconds


def test_what_strikes_the_long_run_is_as_written() -> None:
    assert names(section("A long run")) == [fault.name for fault in CATALOGUE if fault.anytime]


def test_every_fault_and_every_exit_code_has_its_section() -> None:
    tried = Counter(name for lines in endings().values() for name in names(lines["Tried"]))
    assert tried == Counter(fault.name for fault in CATALOGUE)
    ended = {name for lines in endings().values() for name in codes(lines["Ends as"])}
    assert ended == {*ExitCode.__members__, KILLED, LAST}


def codes(text: str) -> list[str]:
    return re.findall(rf"`([A-Z_]+|{LAST})`", text)


@pytest.mark.parametrize(("title", "lines"), endings().items(), ids=endings())
def test_a_section_says_what_the_trainer_says_and_its_entries_demand(title: str, lines: dict[str, str]) -> None:
    assert [*lines] == ["Ends as", "Says", "Then", "Do", "Tried"]
    for name in names(lines["Tried"]):
        assert KNOWN[name].expected.endings <= set(codes(lines["Ends as"]))
    for name, test in re.findall(r"`([\w/]+\.py)::(\w+)`", lines["Tried"]):
        assert f"def {test}(" in (ROOT / name).read_text()
    quoted = re.findall(r'"([^"]+)"', f"{lines['Says']} {lines['Then']} {lines['Do']}")
    assert [words for words in quoted if not any(words in text for text in texts())] == []


@cache
def texts() -> tuple[str, ...]:
    """All that the trainer may say, and what the catalogue waits for others to say."""
    trees = [ast.parse(path.read_text()) for folder in ("workloads", "chaos") for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return tuple(node.value for node in nodes if isinstance(node.value, str))


def test_a_figure_that_people_wrote_is_one_of_the_catalogue() -> None:
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", written(), flags=re.DOTALL)
    limits = {int(fault.expected.recovery_seconds) for fault in CATALOGUE}
    # The first batches; kubelet's word for SIGKILL; the user of the image, whom the page of security has.
    elsewhere = {0, 1, 2, 137, 10001}
    allowed = {len(CATALOGUE), STEPS, SAVE_EVERY, BETWEEN_SAVES, *limits, *elsewhere}
    assert {float(figure) for figure in re.findall(r"\d+(?:\.\d+)?", prose)} <= allowed


def test_what_is_said_to_be_missing_is_missing() -> None:
    assert not any("commit_success" in pattern for pattern in KINDS.values())
    assert not {ExitCode.DIVERGED.name, ExitCode.NO_CHECKPOINT.name} & {
        ending for fault in CATALOGUE for ending in fault.expected.endings
    }
    assert "user 10001 may open `/dev/vfio`" in (ROOT / "docs" / "security.md").read_text()

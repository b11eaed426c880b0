import json
from pathlib import Path

import pytest
from etils import epath

from multislice_run.records import FORMAT
from multislice_run.records import ledger as metrics
from multislice_run.records.events import EventName
from multislice_run.records.ledger import Ledger, LineFile, StepFile, add_unstored
from multislice_run.records.lines import StepLine
from tests.workloads.hosts import wait_until
from workloads.training.failures import Preempted


def events(path: Path) -> list[tuple[str, object]]:
    return [(line["event"], line.get("step", line.get("cause"))) for line in map(json.loads, path.open())]


def test_events_and_the_cause_of_the_end_are_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "0-0.jsonl"
    with Ledger(epath.Path(path)) as ledger:
        ledger.record(EventName.SAVE, step=4)
    assert events(path) == [("save", 4), ("stop", "done")]


def test_a_failure_is_written_before_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "0-0.jsonl"
    with pytest.raises(Preempted), Ledger(epath.Path(path)):
        raise Preempted("SIGTERM")
    assert events(path) == [("stop", "Preempted")]
    assert json.loads(path.read_text())["code"] == "PREEMPTED"


def test_events_reach_storage_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MIN_INTERVAL_SECONDS", 0.01)
    path = tmp_path / "0-0.jsonl"
    with Ledger(epath.Path(path)) as ledger:
        ledger.record(EventName.SAVE, step=4)
        wait_until(path.exists)
        assert events(path) == [("save", 4)]


def test_storage_that_fails_ends_no_training_and_gets_everything_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "MIN_INTERVAL_SECONDS", 0.01)
    path = tmp_path / "run" / "0-0.jsonl"
    with LineFile(epath.Path(path)) as file:
        path.parent.rmdir()
        file.add({"step": 1})
        said: list[str] = []
        wait_until(lambda: said.append(capsys.readouterr().out) or any(said))
        path.parent.mkdir()
        file.add({"step": 2})
    assert "".join(said).startswith(f"{path} lacks its last 1 entries: FileNotFoundError")
    assert [json.loads(line) for line in path.open()] == [{"format": FORMAT, "step": 1}, {"format": FORMAT, "step": 2}]


def test_storage_that_fails_does_not_hide_why_a_job_ends(tmp_path: Path) -> None:
    path = tmp_path / "run" / "0-0.jsonl"

    def stop() -> None:
        path.parent.rmdir()
        raise Preempted("SIGTERM")

    with pytest.raises(Preempted), Ledger(epath.Path(path)):
        stop()


def test_steps_begin_a_new_file_before_the_old_one_gets_slow_to_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "ENTRIES_PER_PART", 2)
    with StepFile(epath.Path(tmp_path), start=3) as steps:
        for number in range(5):
            steps.add(StepLine(step=number, time=0.0))
    written = {path.name: [json.loads(line)["step"] for line in path.open()] for path in tmp_path.iterdir()}
    assert written == {"3-0.jsonl": [0, 1], "3-1.jsonl": [2, 3], "3-2.jsonl": [4]}


def test_lines_that_a_killed_leader_had_not_stored_are_added_to_its_last_file(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "time": 10.0 * step}) for step in range(1, 6)]
    folder = epath.Path(tmp_path / "steps")
    add_unstored(folder, 0, lines[:1])
    (folder / "0-1.jsonl").write_text("\n".join(lines[1:3]) + "\n")
    # One line was stored after this process counted them.
    add_unstored(folder, 0, lines[2:])
    add_unstored(folder, 0, [])
    written = {path.name: [json.loads(line)["step"] for line in path.open()] for path in (tmp_path / "steps").iterdir()}
    assert written == {"0-0.jsonl": [1], "0-1.jsonl": [2, 3, 4, 5]}


def test_lines_are_unstored_until_they_are_written(tmp_path: Path) -> None:
    steps = StepFile(epath.Path(tmp_path), start=0)
    steps.add(StepLine(step=1, time=0.0))
    assert [json.loads(line)["step"] for line in steps.unstored] == [1]
    with steps:
        pass
    assert steps.unstored == []

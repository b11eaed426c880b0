import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from etils import epath

from multislice_run.records import FORMAT
from multislice_run.records.lines import FailureRecord, StepLine, parse
from multislice_run.records.reader import Event, ProcessFailure, read_failures, read_lines, read_record
from tests.workloads.report.runs import failure


def write(storage: Path, submission: str, name: str, time: float, **facts: object) -> None:
    folder = storage / "failures" / submission
    folder.mkdir(parents=True, exist_ok=True)
    record = {**failure("job-slice-0-1", "why", 1, began=0, time=time), **facts}
    (folder / name).write_text(json.dumps(record))


def test_the_name_of_a_record_has_attempt_and_begin_of_its_process(tmp_path: Path) -> None:
    write(tmp_path, "one", "job-slice-0-1-2-1790000000.json", 1_790_000_009.0)
    (recorded,) = read_failures(epath.Path(tmp_path), [])
    assert recorded == ProcessFailure(
        "one", 2, 1_790_000_000, FailureRecord("why", "job-slice-0-1", 1, 1_790_000_009.0)
    )


def test_failures_of_all_submissions_or_of_some_come_by_their_time(tmp_path: Path) -> None:
    for time, submission in ((9.0, "one"), (5.0, "two"), (7.0, "three")):
        write(tmp_path, submission, "host-0-1.json", time)
    write(tmp_path, "one", "host-1-1.json", 1.0, elsewhere=True)
    assert [recorded.run_id for recorded in read_failures(epath.Path(tmp_path), [])] == ["two", "three", "one"]
    some = read_failures(epath.Path(tmp_path), [], {"one", "two", "never"})
    assert [recorded.run_id for recorded in some] == ["two", "one"]


def test_records_that_cannot_be_read_are_noted(tmp_path: Path) -> None:
    write(tmp_path, "one", "host.json", 1.0)
    write(tmp_path, "one", "host-0-1.json", 1.0, code="none")
    notes: list[str] = []
    assert read_failures(epath.Path(tmp_path), notes) == []
    assert [note.partition(" ")[0] for note in notes] == ["one/host-0-1.json", "failures/one/host.json:"]
    assert read_failures(epath.Path(tmp_path / "nowhere"), notes) == []


def test_a_newer_format_is_read_as_far_as_it_is_known_and_named(tmp_path: Path) -> None:
    notes: list[str] = []
    path = epath.Path(tmp_path) / "0-0.jsonl"
    newer = {"format": FORMAT + 1, "time": 2.0, "event": "moved", "weather": "fine"}
    path.write_text("\n".join(map(json.dumps, [newer, {**newer, "event": "save", "step": 3}])))
    assert [(event.name, event.facts) for event in read_lines(path, Event.parse, notes)] == [
        ("moved", {"weather": "fine"}),
        ("save", {"weather": "fine", "step": 3}),
    ]
    assert read_record(path.with_name("step.json"), partial(parse, StepLine), notes) is None
    path.with_name("step.json").write_text(json.dumps({"format": FORMAT + 1, "step": 1, "time": 2, "weather": 1}))
    assert read_record(path.with_name("step.json"), partial(parse, StepLine), notes) == StepLine(step=1, time=2)
    assert [note.partition(", newer")[0].removeprefix(f"{tmp_path.name}/") for note in notes] == [
        f"0-0.jsonl has format {FORMAT + 1}",
        "step.json is missing",
        f"step.json has format {FORMAT + 1}",
    ]


@pytest.mark.parametrize(
    "wrong",
    [[], {}, {"step": 1}, {"step": -1, "time": 1.0}, {"step": True, "time": 1.0}, {"step": 1, "time": "1.0"}]
    + [{"step": 1, "time": 1.0, "loss": math.nan}, {"step": 1, "time": 1.0, "device_bytes_in_use": [1, "2"]}],
)
def test_a_line_with_another_shape_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected|missing"):
        parse(StepLine, wrong)


def test_a_line_that_is_written_can_be_read() -> None:
    written = StepLine(step=1, time=2.0, loss=math.inf, z_loss=0.5, skipped=True, device_bytes_in_use=[None, 3])
    facts = json.loads(json.dumps(written.facts(), allow_nan=False))
    assert facts["loss"] is None
    assert "mfu" not in facts
    assert parse(StepLine, facts) == replace(written, loss=None)

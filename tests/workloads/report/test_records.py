import json
from pathlib import Path

from etils import epath

from tests.workloads.report.runs import failure
from workloads.report.records import Failure, ProcessFailure, read_failures


def write(storage: Path, submission: str, name: str, time: float, **facts: object) -> None:
    folder = storage / "failures" / submission
    folder.mkdir(parents=True, exist_ok=True)
    record = {**failure("job-slice-0-1", "why", 1, began=0, time=time), **facts}
    (folder / name).write_text(json.dumps(record))


def test_the_name_of_a_record_has_attempt_and_begin_of_its_process(tmp_path: Path) -> None:
    write(tmp_path, "one", "job-slice-0-1-2-1790000000.json", 1_790_000_009.0)
    (recorded,) = read_failures(epath.Path(tmp_path), [])
    assert recorded == ProcessFailure("one", 1_790_000_000, Failure(2, "job-slice-0-1", "why", 1, 1_790_000_009.0))


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

from pathlib import Path

from tests.workloads.report.runs import began, crashed_and_resumed, event, history, step, write_run


def test_starts_tell_how_they_ended_and_why(tmp_path: Path) -> None:
    first, second = history(crashed_and_resumed(tmp_path)).starts
    assert (first.ending, first.cause) == ("CRASH", "host-1: ValueError: no such row")
    assert (second.ending, second.cause) == ("DONE", "")
    assert (first.began, first.ended) == ((0, 2), 15.5)


def test_failures_elsewhere_and_of_other_attempts_are_not_the_cause(tmp_path: Path) -> None:
    own = {"attempt": 0, "host": "host-1", "cause": "a hang", "code": 24, "time": 9.0}
    heard = {"attempt": 0, "host": "host-0", "cause": "host-1 failed", "code": 24, "time": 8.0, "elsewhere": True}
    later = {"attempt": 1, "host": "host-1", "cause": "a crash", "code": 1, "time": 7.0}
    (start,) = history(write_run(tmp_path, {"0-0": [began(1)]}, {}, own, heard, later)).starts
    assert (start.ending, start.cause) == ("HANG", "host-1: a hang")


def test_a_start_without_a_word_was_killed_if_another_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"0-0": [began(1)], "1-0": [began(9, 1, 8)]}, {})
    assert [start.ending for start in history(run).starts] == ["KILLED", "no end recorded"]


def test_parts_of_the_steps_follow_each_other_by_number(tmp_path: Path) -> None:
    parts = {f"0-{part}": [step(part + 1, 10.0 + part)] for part in range(12)}
    (start,) = history(write_run(tmp_path, {}, parts)).starts
    assert [each.step for each in start.steps] == list(range(1, 13))


def test_what_cannot_be_read_is_noted_and_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"0-0": [began(1), event(2, "save", step=1)]}, {})
    ledger = run / "ledger" / "0-0.jsonl"
    ledger.write_text(ledger.read_text() + '{"time": 3, "ev\n[1]\n')
    (run / "ledger" / "0-1.jsonl").write_text("")
    (run / "placement").mkdir()
    (run / "placement" / "0.json").write_text("{}")
    found = history(run)
    assert [[each.name for each in events] for events in found.starts[0].ledgers.values()] == [["start", "save"], []]
    assert found.placement is None
    assert [note.split(" cannot")[0] for note in found.notes] == [
        "ledger/0-0.jsonl, line 3",
        "ledger/0-0.jsonl, line 4",
        "manifest.json is missing",
        "placement/0.json",
    ]

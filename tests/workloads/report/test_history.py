import json
import shutil
from pathlib import Path

from etils import epath

from multislice_run.worlds import Ended, Roll, World, Worlds
from tests.workloads.report.runs import began, event, failure, history, step, write_run
from workloads.report.page import page
from workloads.spec import ExitCode


def test_events_of_one_name_are_the_leaders_over_all_starts(tmp_path: Path) -> None:
    ledgers = {
        "0-0": [began(1), event(2, "save", step=1), event(3, "stop", cause="CRASH")],
        "0-1": [began(1), event(2, "save", step=7)],
        "1-0": [began(4), event(5, "save", step=2)],
    }
    found = history(write_run(tmp_path, ledgers, {}))
    assert [each.facts["step"] for each in found.events("save")] == [1, 2]
    assert found.events("evaluation") == ()


LOST = failure("host-0", "another host is gone", ExitCode.PEER_LOST, began=0, time=8.0)


def test_failures_elsewhere_of_other_attempts_and_by_the_loss_of_a_host_are_not_the_cause(tmp_path: Path) -> None:
    own = failure("host-1", "a hang", 24, began=0, time=9.0)
    heard = {**failure("host-2", "host-1 failed", 24, began=0, time=8.5), "elsewhere": True}
    later = failure("host-1", "a crash", 1, began=0, time=7.0, attempt=1)
    (start,) = history(write_run(tmp_path, {"0-0": [began(1)]}, {}, own, heard, later, LOST)).starts
    assert (start.ending, start.cause) == ("HANG", "host-1: a hang")


def test_the_hosts_that_recorded_no_end_are_the_cause_if_the_others_only_lost_one(tmp_path: Path) -> None:
    """A killed host writes no record."""
    stop = event(8, "stop", cause="JaxRuntimeError", code="PEER_LOST")
    hosts = [{**began(1), "host": f"host-{process}"} for process in range(4)]
    ledgers = {"0-0": [hosts[0]], "0-1": [hosts[1], stop], "0-2": [hosts[2]], "0-3": [hosts[3]]}
    (start,) = history(write_run(tmp_path, ledgers, {}, LOST)).starts
    assert start.ending == "KILLED"
    assert start.cause.startswith("host-2 or host-3: ended without a record")


def test_if_all_hosts_lost_another_one_no_host_is_said_to_be_killed(tmp_path: Path) -> None:
    stop = event(8, "stop", cause="JaxRuntimeError", message="no connection", code="PEER_LOST")
    ledgers = {f"0-{process}": [{**began(1), "host": f"host-{process}"}, stop] for process in range(2)}
    (start,) = history(write_run(tmp_path, ledgers, {})).starts
    assert (start.ending, start.cause) == ("PEER_LOST", "JaxRuntimeError: no connection")


def test_starts_of_one_attempt_have_the_failures_of_their_own_processes(tmp_path: Path) -> None:
    """A job that is evicted and continues keeps its number of restarts. The hosts' clocks differ."""
    evicted = failure("host-0", "SIGTERM", 143, began=0, time=9.0)
    crashed = failure("host-0", "a crash", 1, began=8, time=12.0)
    # This host failed before its first lines were written.
    soon = failure("host-1", "no such row", 1, began=8, time=9.5)
    ledgers = {"0-0": [began(1, at=0)], "1-0": [began(9, at=8.7)], "2-0": [began(22, attempt=1, at=20)]}
    found = history(write_run(tmp_path, ledgers, {}, evicted, crashed, soon))
    assert [[each.cause for each in start.failures] for start in found.starts] == [
        ["SIGTERM"],
        ["no such row", "a crash"],
        [],
    ]
    assert found.unopened == ()


def test_a_start_whose_ledger_is_lost_has_the_failures_of_its_time(tmp_path: Path) -> None:
    lost = failure("host-0", "a crash", 1, began=50, time=80.0, attempt=1)
    ledgers = {"0-0": [began(1, at=0)], "2-0": [began(101, attempt=2, at=100)]}
    found = history(write_run(tmp_path, ledgers, {"1-0": [step(1, 60), step(2, 79)]}, lost))
    assert [start.ending for start in found.attempts] == ["KILLED", "CRASH", "no end recorded"]


def test_a_failure_of_a_start_without_a_ledger_is_not_that_of_the_start_before(tmp_path: Path) -> None:
    evicted = failure("host-0", "SIGTERM", 143, began=0, time=20.0)
    bad = failure("host-0", "wrong products", ExitCode.BAD_HOST, began=7_100, time=7_200.0)
    ledgers = {"0-0": [began(1, at=0), event(11, "save", step=1)], "1-0": [began(7_310, attempt=1, at=7_300)]}
    found = history(write_run(tmp_path, ledgers, {}, evicted, bad))
    assert [start.ended for start in found.starts] == [20.0, 7_310.0]
    (unopened,) = found.unopened
    assert (unopened.number, unopened.began, unopened.ended) == (1, (7_100, 7_100), 7_200.0)
    assert [start.ending for start in found.attempts] == ["PREEMPTED", "BAD_HOST", "no end recorded"]


def test_hosts_that_failed_together_before_they_opened_the_run_are_one_start(tmp_path: Path) -> None:
    both = [failure(f"host-{place}", "no peers", ExitCode.HANG, began=10 + place, time=40.0) for place in range(2)]
    again = failure("host-0", "no peers", ExitCode.HANG, began=50, time=80.0)
    after = failure("host-1", "no peers", ExitCode.HANG, began=120, time=150.0)
    found = history(write_run(tmp_path, {"0-0": [began(101, at=100)]}, {}, *both, again, after))
    assert [(start.number, start.opened, start.host_begins) for start in found.attempts] == [
        (0, False, (10, 11)),
        (0, False, (50,)),
        (0, True, ()),
        (1, False, (120,)),
    ]
    assert found.starts[0].ending == "KILLED"


def test_failures_of_submissions_that_the_run_does_not_name_are_not_its_own(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"0-0": [began(11, at=10)]}, {})
    record = json.dumps(failure("host-0", "a lease is held", ExitCode.INVALID_SPEC, began=1, time=2.0))
    for submission in ("other", run.name):
        (tmp_path / "failures" / submission).mkdir()
        (tmp_path / "failures" / submission / "host-0-0-1.json").write_text(record)
    (unopened,) = history(run).unopened
    assert unopened.cause == "host-0: a lease is held"


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


def test_a_folder_is_missing_only_if_the_other_one_shows_that_the_run_has_trained(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"0-0": [began(1), event(2, "save", step=1)]}, {"0-0": [step(1, 2)]})
    (run / "manifest.json").write_text("{}")
    (run / "steps").rename(tmp_path / "steps")
    assert history(run).notes == ("steps/ is missing",)
    (run / "ledger" / "0-0.jsonl").write_text(json.dumps(began(1)))
    assert history(run).notes == ()
    shutil.rmtree(run / "ledger")
    assert history(run).notes == ()
    (tmp_path / "steps").rename(run / "steps")
    assert history(run).notes == ("ledger/ is missing",)


def test_a_process_that_was_killed_in_its_pod_ended_its_own_attempt(tmp_path: Path) -> None:
    # Its supervisor started it some seconds before it knew itself that it began.
    killed = failure("host-1", "the process was killed by SIGKILL", 137, began=1, time=8.0)
    lost = failure("host-0", "another host is gone", ExitCode.PEER_LOST, began=4, time=7.5)
    ledgers = {"0-0": [began(5, at=4)], "0-1": [began(5, at=4, host="host-1")]}
    (start,) = history(write_run(tmp_path, ledgers, {}, lost, killed)).attempts
    assert (start.ending, start.cause) == ("KILLED", "host-1: the process was killed by SIGKILL")


def test_no_attempt_follows_after_the_restarts_are_used_up(tmp_path: Path) -> None:
    crash = failure("host-0", "ValueError: no such row", 1, began=0, time=8.0)
    run = write_run(tmp_path, {"0-0": [began(1)]}, {}, crash)
    assert not history(run).over
    storage = epath.Path(tmp_path)
    Worlds(storage, "job").form(World(0, [0], []))
    Roll(storage, "job", 1).end(Ended(int(ExitCode.RESTARTS_USED_UP), "the job has used up its 0 restarts", 9.0))
    found = history(run)
    assert (found.over, found.attempts[-1].ending) == (True, "CRASH")
    assert "CRASH: " in page(found)
    assert "The restarts are used up." in page(found)


def test_an_attempt_that_did_not_open_the_run_has_a_number(tmp_path: Path) -> None:
    hang = failure("host-0", "attempt 2 did not begin", ExitCode.HANG, began=9, time=20.0, attempt=1)
    found = history(write_run(tmp_path, {"0-0": [began(1)]}, {}, hang))
    assert [(start.attempt, start.opened) for start in found.attempts] == [(("job", 0), True), (("job", 1), False)]

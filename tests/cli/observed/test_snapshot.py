"""What all commands show of a job, by its state in the cluster and the records in its folder."""

import re
from pathlib import Path
from typing import Any

import pytest

from cli.explain.explain import command as explain
from cli.observed.observe import Observer
from cli.observed.snapshot import Summary, summary
from cli.status import jobs, line, status
from infra.cluster.job_state import State
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, JOBSETS, PODS, START, WORKLOADS
from tests.cli.api_server import Played
from tests.cli.shown import console, read_output
from tests.cli.standing import finish, stack
from tests.workloads.report.runs import began, event, moved, step, write_run

FIRST = [
    began(3, 0, 2, 3600.0, run_id="uid-tiny"),
    event(9, "run_started", run="one", outcome="new", step=0, steps=5),
    event(12, "checkpoint_saved", step=2),
    event(13, "evaluation", step=3, loss=2.5),
]
STEPS = [step(1, 10), step(2, 11), step(3, 13), step(4, 14)]
BEGAN_AGAIN = began(83, 1, 82, 3600.0, run_id="uid-tiny")
RESTORED = event(85, "restore", step=2, source="storage")
OPENED = event(86, "run_started", run="one", outcome="resumed", step=2, steps=5)


def write(storage: Path, *attempts: list[dict[str, Any]], again: int = 0, **names: str) -> Path:
    """Write the ledgers of attempts, the steps of the first one and the first `again` steps of the second."""
    ledgers = {f"{number}-0": moved(lines, START + 60) for number, lines in enumerate(attempts)}
    steps = {"0-0": STEPS} | ({"1-0": [step(3, 87, loss=2.25), step(4, 88)][:again]} if again else {})
    return write_run(
        storage / "tiny", ledgers, {name: moved(lines, START + 60) for name, lines in steps.items()}, **names
    )


def restart(server: Played) -> None:
    """The job has restarted once, and all its hosts run again."""
    server.change(JOBSETS, api_objects.jobset(restarts=1))
    server.collections[PODS] = [api_objects.pod(*host, attempt=1, created=140) for host in HOSTS]


def evict(server: Played) -> None:
    """The queue has evicted the job, whose hosts have ended."""
    evicted = api_objects.workload(conditions=[api_objects.condition("Evicted", "True", 100, reason="Preempted")])
    del evicted["status"]["admission"]
    server.change(WORKLOADS, evicted)
    server.collections[PODS] = []


def seen(server: Played, storage: Path) -> Summary:
    found, job = Observer(stack(server, storage)).job("tiny")
    return summary(job, found.at)


def views(server: Played, storage: Path) -> list[str]:
    """Return what `status`, `list`, `explain` and the log of `up` say of the job."""
    deployed, shown = stack(server, storage), [console() for _ in range(3)]
    status(deployed, "tiny", shown[0], json=False)
    jobs(deployed, shown[1], json=False)
    explain(deployed, "tiny", shown[2], json=False)
    found, job = Observer(deployed).job("tiny")
    return [*(re.sub(r"\s+", " ", read_output(each)) for each in shown), line(job, found.at)]


def assert_no_figures(server: Played, storage: Path) -> None:
    found = seen(server, storage)
    assert (found.step, found.attempt, found.loss, found.seconds_left) == (None, None, None, None)
    assert [view for view in views(server, storage) if re.search(r"step \d+ of|\d of 5|loss|left|s/s", view)] == []


@pytest.mark.parametrize(
    "records", [[FIRST], [FIRST, [BEGAN_AGAIN]]], ids=["before its first record", "with a record of its begin"]
)
def test_an_attempt_that_restores_shows_the_last_save_and_no_figure_of_the_one_before(
    server: Played, tmp_path: Path, records: list[list[dict[str, Any]]]
) -> None:
    write(tmp_path, *records)
    restart(server)
    assert all("restoring, last save at step 2" in view for view in views(server, tmp_path))
    assert_no_figures(server, tmp_path)


def test_an_attempt_that_has_restored_shows_its_step_but_no_loss_before_its_first_one(
    server: Played, tmp_path: Path
) -> None:
    write(tmp_path, FIRST, [BEGAN_AGAIN, RESTORED, OPENED])
    restart(server)
    found = seen(server, tmp_path)
    assert (found.step, found.attempt, found.loss, found.seconds_left) == (2, 2, None, None)
    assert all("2 of 5 in attempt 2" in view for view in views(server, tmp_path))


def test_the_figures_are_those_of_the_attempt_that_runs(server: Played, tmp_path: Path) -> None:
    write(tmp_path, FIRST, [BEGAN_AGAIN, RESTORED, OPENED], again=1)
    restart(server)
    found = seen(server, tmp_path)
    assert (found.step, found.attempt, found.loss, found.checkpoint_step) == (3, 2, 2.25, 2)
    assert all("3 of 5 in attempt 2" in view for view in views(server, tmp_path))


def test_a_job_that_begins_a_new_run_shows_nothing_of_the_old_one(server: Played, tmp_path: Path) -> None:
    write(tmp_path, [began(3, 0, 2, 3600.0, run_id="old"), *FIRST[1:]])
    server.change(JOBSETS, api_objects.specified("new", steps=7))
    assert_no_figures(server, tmp_path)
    found = seen(server, tmp_path)
    assert (found.run, found.steps, found.checkpoint_step, found.usd) == ("", 7, None, None)
    write(tmp_path, FIRST, name="uid-tiny")
    (tmp_path / "tiny" / "current.json").write_text('{"run": "uid-tiny"}')
    assert (seen(server, tmp_path).run, seen(server, tmp_path).step) == ("uid-tiny", 4)


def test_a_resubmitted_job_restores_the_run_and_is_not_where_its_predecessor_ended(
    server: Played, tmp_path: Path
) -> None:
    write(tmp_path, [began(3, 0, 2, 3600.0, run_id="old"), *FIRST[1:]])
    server.change(JOBSETS, api_objects.specified("resume", steps=7))
    assert_no_figures(server, tmp_path)
    assert "restoring, last save at step 2" in views(server, tmp_path)[0]
    assert seen(server, tmp_path).steps == 7


def test_an_evicted_job_shows_its_last_save_until_it_has_restored_it(server: Played, tmp_path: Path) -> None:
    write(tmp_path, FIRST)
    assert seen(server, tmp_path).step == 4
    evict(server)
    assert_no_figures(server, tmp_path)
    found = seen(server, tmp_path)
    assert (found.state, found.progress) == (State.EVICTED, "last save at step 2")
    server.change(WORKLOADS, api_objects.workload(conditions=api_objects.ADMITTED))
    server.collections[PODS] = [api_objects.pod(*host, created=140) for host in HOSTS]
    assert_no_figures(server, tmp_path)
    assert seen(server, tmp_path).progress == "restoring, last save at step 2"


@pytest.mark.parametrize("terminal", ["Completed", "Failed"])
def test_no_host_of_a_job_that_has_ended_runs_or_is_to_be_created(
    server: Played, tmp_path: Path, terminal: str
) -> None:
    write(tmp_path, [*FIRST, event(20, "stop", cause="done", message="", code="DONE")])
    finish(server, terminal)
    server.collections[PODS] = server.collections[PODS][:3]
    shown = views(server, tmp_path)[0]
    assert "hosts 4 on 2 slices" in shown
    assert "running" not in shown
    assert "to be created" not in shown
    assert (seen(server, tmp_path).hosts_running, seen(server, tmp_path).step) == (0, 4)


def test_a_program_whose_files_cannot_be_read_is_not_said_to_wait(server: Played, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "runs").write_text("not a folder")
    assert seen(server, tmp_path).progress == ""

import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.deployed import Deployed, JobRef
from cli.status import Watch, jobs, status
from infra.stack.cost import BILL_OUTPUT, bill
from tests.cli import api_objects
from tests.cli.api_objects import EVENTS, JOBS, JOBSETS, LOCAL_QUEUES, NODES, PODS, QUEUES, WORKLOADS
from tests.cli.api_server import Played
from tests.cli.shown import console, read_output
from tests.cli.standing import finish, stack, trained, waiting
from tests.workloads.report.runs import Facts, began, event, step, write_run

ALL_PATHS = (NODES, QUEUES, LOCAL_QUEUES, JOBSETS, WORKLOADS, PODS, JOBS, EVENTS)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    trained(tmp_path)
    return tmp_path


def status_of(deployed: Deployed, name: str | None = None) -> str:
    """Return what `status` shows, with one space for several."""
    shown = console()
    assert status(deployed, name, shown, json=False) == 0
    return re.sub(" +", " ", read_output(shown))


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without the values that differ between two reads of the same state."""
    (job,) = answer["jobs"]
    return {"jobs": [{**job, "age_seconds": None}], "stack": {**answer["stack"], "at": None}}


def test_the_stack_and_its_job_are_on_one_screen(server: Played, storage: Path) -> None:
    lines = status_of(stack(server, storage))
    assert "dev · cluster dev · $21.60 an hour" in lines
    assert "slice slice-0 2 of 2 hosts usable, 2x4" in lines
    assert "queue research 16 of 16 chips of v6e, 1 admitted, 1 waiting" in lines
    assert "tiny running · submitted" in lines
    assert "training step 5 of 5 in attempt 2, run one, resumed at step 2" in lines
    assert "spent $54.00 so far" in lines
    assert "0 0 Running gke-slice-0-0" in lines


def saved_nothing(storage: Path) -> Path:
    """Write the records of a first attempt that has done two steps."""
    at = api_objects.START + 60
    opened = [began(at, at=at, run_id="uid-tiny"), event(at, "run_started", run="one", outcome="new", step=0, steps=5)]
    return write_run(storage / "tiny", {"0-0": opened}, {"0-0": [step(1, at + 1), step(2, at + 2)]})


@pytest.mark.parametrize("terminal", [True, False])
def test_a_kill_is_suggested_only_once_a_checkpoint_exists(terminal: bool, server: Played, tmp_path: Path) -> None:
    run = saved_nothing(tmp_path)

    def drawn() -> str:
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=terminal, width=100)
        watch = Watch(stack(server, tmp_path), "tiny", console, hint="kill -9 42", wait=_interrupt)
        with suppress(KeyboardInterrupt):
            watch.follow()
        return screen.getvalue()

    assert "kill -9 42" not in drawn()
    with (run / "ledger" / "0-0.jsonl").open("a") as ledger:
        ledger.write(json.dumps(event(40, "checkpoint_saved", step=2)) + "\n")
    assert "try: kill -9 42" in drawn()


def test_a_log_has_the_suggestion_once_although_the_job_has_no_other_news(server: Played, tmp_path: Path) -> None:
    run, shown = saved_nothing(tmp_path), console()

    def add(*events: Facts) -> None:
        with (run / "ledger" / "0-0.jsonl").open("a") as ledger:
            ledger.write("".join(json.dumps(each) + "\n" for each in events))

    def end() -> None:
        add(event(50, "stop", cause="done", message="", code="DONE"))
        finish(server)

    happens = iter([lambda: add(event(40, "checkpoint_saved", step=2)), lambda: None, end])
    watch = Watch(stack(server, tmp_path), "tiny", shown, hint="kill -9 42", wait=lambda _: next(happens)())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cli.observed.observe.FILES_SECONDS", 0.0)
        watch.follow()
    lines = read_output(shown).splitlines()
    assert [line for line in lines if "kill" in line] == ["try: kill -9 42"]
    assert "running" in lines[0]
    assert lines[1] == "try: kill -9 42"


def _interrupt(_: float) -> None:
    raise KeyboardInterrupt


def with_two_slices(server: Played, storage: Path) -> Deployed:
    """The local stack's outputs say that it has the slices trillium-0 and trillium-1; nodes of the first are there."""
    server.collections[NODES] = [found for found in server.collections[NODES] if "slice-0" in found["metadata"]["name"]]
    for found in server.collections[NODES]:
        found["metadata"]["labels"]["cloud.google.com/gke-nodepool"] = "trillium-0"
    answer = bill(stack_file.read(stack_file.find("local")), {}, None).model_dump(exclude={"delta"})
    return replace(stack(server, storage), outputs={**stack(server, storage).outputs, BILL_OUTPUT: answer})


def test_a_slice_without_a_host_is_shown(server: Played, storage: Path) -> None:
    lines = status_of(with_two_slices(server, storage))
    assert "slice trillium-0 2 of 2 hosts usable, 2x4" in lines
    assert "slice trillium-1 has no host, 2x4" in lines


def test_a_user_who_may_not_read_nodes_sees_no_message_about_missing_hosts(server: Played, storage: Path) -> None:
    standing = with_two_slices(server, storage)
    server.refused[NODES] = 403
    lines = status_of(standing)
    assert "has no host" not in lines
    assert "you may not list nodes" in lines


def test_a_program_of_ones_own_has_no_steps_to_wait_for(server: Played, storage: Path) -> None:
    found = api_objects.jobset()
    (job,) = found["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"] = [{"name": "program"}]
    server.change(JOBSETS, found)
    server.change(PODS, api_objects.pod(0, 0, "Failed", exit_code=22))
    lines = status_of(stack(server, storage))
    assert "JAX" not in lines
    assert "Failed, exit 22 " in lines


def test_a_head_hides_no_host_that_is_missing(server: Played, storage: Path) -> None:
    server.collections[JOBSETS] = [api_objects.headed()]
    server.collections[PODS] = [api_objects.head(), *server.collections[PODS][:3]]
    lines = status_of(stack(server, storage))
    assert "hosts 3 of 4 running on 2 slices" in lines
    assert "head - Running gke-system-0" in lines
    assert "1 more to be created" in lines


def test_a_job_that_waits_for_its_head_alone_says_so(server: Played, storage: Path) -> None:
    server.collections[JOBSETS] = [api_objects.headed()]
    server.change(PODS, api_objects.head("Pending"))
    shown = console()
    watch = Watch(stack(server, storage), None, shown, wait=lambda _: finish(server))
    assert watch.run() == 0
    assert "tiny starting, 4 of 4 hosts running, head not running, " in read_output(shown).splitlines()[0]


def test_of_several_jobs_each_has_a_line_and_the_name_of_one_shows_it_whole(server: Played, storage: Path) -> None:
    server.change(JOBSETS, api_objects.jobset(name="other"))
    refs = (JobRef("tiny", "research", "research"), JobRef("other", "research", "research"))
    several = replace(stack(server, storage), jobs=refs)
    lines = status_of(several).splitlines()
    (tiny,) = [line for line in lines if line.startswith("tiny ")]
    assert "5 of 5" in tiny
    assert [line for line in lines if line.startswith("other ")]
    assert "training step 5 of 5" in status_of(several, "tiny")


@pytest.mark.parametrize("show", [jobs, partial(status, name=None)])
def test_without_a_terminal_no_name_is_cut(show: Callable[..., int], server: Played, storage: Path) -> None:
    name = "a-name-of-twenty-six-chars"
    server.change(JOBSETS, api_objects.jobset(name=name))
    there = replace(stack(server, storage), jobs=(JobRef("tiny", "research", ""), JobRef(name, "research", "")))
    shown = Console(file=io.StringIO(), width=40)
    assert show(there, console=shown, json=False) == 0
    assert [line for line in read_output(shown).splitlines() if line.startswith(f"{name}  research ")]


@pytest.mark.parametrize("width", [54, 80])
@pytest.mark.parametrize("show", [jobs, partial(status, name=None)])
def test_a_narrow_terminal_cuts_names_before_the_state(
    show: Callable[..., int], width: int, server: Played, storage: Path
) -> None:
    name = "a-name-of-a-job-that-has-more-characters-than-a-narrow-terminal-has"
    server.change(JOBSETS, api_objects.jobset(name=name))
    server.change(WORKLOADS, waiting(name))
    there = replace(stack(server, storage), jobs=(JobRef("tiny", "research", ""), JobRef(name, "research", "")))
    shown = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    assert show(there, console=shown, json=False) == 0
    (line,) = [line for line in read_output(shown).splitlines() if line.startswith("a-na")]
    assert "…" in line
    assert "queued" in line
    assert "research, position 1" in line


def test_without_a_terminal_no_line_of_a_status_is_cut(server: Played, storage: Path) -> None:
    shown = Console(file=io.StringIO(), width=20)
    assert status(stack(server, storage), None, shown, json=False) == 0
    lines = read_output(shown).splitlines()
    assert "queue research 16 of 16 chips of v6e, 1 admitted, 1 waiting" in [re.sub(" +", " ", each) for each in lines]
    assert all(each == each.rstrip() for each in lines)


def test_all_jobs_are_listed_with_their_place_in_line(server: Played, storage: Path) -> None:
    other = api_objects.jobset(name="other")
    server.change(JOBSETS, other)
    server.change(WORKLOADS, waiting("other"))
    shown = console()
    assert jobs(stack(server, storage), shown, json=False) == 0
    lines = re.sub(" +", " ", read_output(shown)).splitlines()
    assert lines[1].startswith("tiny research running research ")
    assert lines[1].rstrip().endswith("5 of 5 in attempt 2 0 $54.00")
    assert lines[2].startswith("other research queued research, position 1 ")


@pytest.mark.parametrize(("terminal", "exit_status"), [("Completed", 0), ("Failed", 2)])
def test_a_watch_ends_with_the_job(server: Played, storage: Path, terminal: str, exit_status: int) -> None:
    shown = console()
    watch = Watch(stack(server, storage), None, shown, wait=lambda _: finish(server, terminal))
    assert watch.run() == exit_status
    first, last = read_output(shown).splitlines()
    assert first.endswith("tiny running, step 5 of 5 in attempt 2, loss 3.0000, 0.0 s left")
    assert f"tiny {terminal.lower()}, step 5 of 5" in last


def cut(run: Path) -> Callable[[], None]:
    """Cut the records of the second attempt after its first step. Return what writes the rest."""
    whole = {path: path.read_text() for path in (run / "ledger" / "1-0.jsonl", run / "steps" / "1-0.jsonl")}
    for path, text in whole.items():
        lines = [each for each in text.splitlines() if json.loads(each)["time"] <= api_objects.START + 97]
        path.write_text("".join(each + "\n" for each in lines))

    def write_rest() -> None:
        for path, text in whole.items():
            path.write_text(text)

    return write_rest


@pytest.mark.parametrize("late", [0, 1, 4])
def test_a_watch_ends_with_the_last_records_although_it_has_just_read_others(
    server: Played, tmp_path: Path, late: int
) -> None:
    write_rest, looks, shown = cut(trained(tmp_path)), iter(range(9)), console()

    def wait(_: float) -> None:
        look = next(looks)
        if look == 0:
            finish(server)
        if look == late:
            write_rest()

    _, job = Watch(stack(server, tmp_path), None, shown, wait=wait).follow()
    first, last = read_output(shown).splitlines()
    assert "tiny running, step 3 of 5" in first
    assert "tiny completed, step 5 of 5" in last
    assert job.training.held_out_loss == 2.5


def test_a_watch_does_not_wait_for_ever_for_the_last_records(server: Played, tmp_path: Path) -> None:
    cut(trained(tmp_path))
    assert Watch(stack(server, tmp_path), None, console(), wait=lambda _: finish(server)).run() == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_a_watch_as_json_is_the_object_of_status_on_a_line(server: Played, storage: Path, terminal: bool) -> None:
    once, shown = console(), console(terminal=terminal)
    status(stack(server, storage), None, once, json=True)
    watch = Watch(stack(server, storage), None, shown, json=True, wait=lambda _: finish(server, "Failed"))
    assert watch.run() == 2
    first, last = (json.loads(line) for line in read_output(shown).splitlines())
    assert without_times(first) == without_times(json.loads(read_output(once)))
    assert [answer["jobs"][0]["state"] for answer in (first, last)] == ["running", "failed"]


def test_a_watch_as_json_prints_nothing_while_only_the_time_changes(server: Played, storage: Path) -> None:
    shown, looks = console(), iter(range(9))

    def wait(_: float) -> None:
        if next(looks) == 3:
            finish(server)

    assert Watch(stack(server, storage), None, shown, json=True, wait=wait).run() == 0
    assert len(read_output(shown).splitlines()) == 2


def test_a_watch_as_json_says_that_the_cluster_is_away(server: Played, storage: Path) -> None:
    shown, looks = console(), iter(range(9))

    def wait(_: float) -> None:
        away = next(looks) < 2
        server.refused = dict.fromkeys(ALL_PATHS, 503) if away else {}
        if not away:
            finish(server)

    assert Watch(stack(server, storage), None, shown, json=True, wait=wait).run() == 0
    stacks = [json.loads(line)["stack"] for line in read_output(shown).splitlines()]
    assert [stack["answered"] for stack in stacks] == [True, False, True]
    assert "503" in stacks[1]["notes"][0]


def test_a_watch_on_a_terminal_redraws_the_screen(server: Played, storage: Path) -> None:
    shown = console(terminal=True)
    assert Watch(stack(server, storage), None, shown, wait=lambda _: finish(server)).run() == 0
    assert read_output(shown).count("hosts usable") >= 4


def test_a_watch_ends_when_its_job_is_gone_for_good(server: Played, storage: Path) -> None:
    shown = console()
    watch = Watch(stack(server, storage), None, shown, wait=lambda _: server.collections[JOBSETS].clear())
    assert watch.run() == 2
    assert "tiny missing" in read_output(shown).splitlines()[-1]


def test_a_watch_goes_on_with_the_job_that_takes_the_place_of_its_own(server: Played, storage: Path) -> None:
    found, looks = list(server.collections[JOBSETS]), iter(range(40))

    def wait(_: float) -> None:
        look = next(looks)
        server.collections[JOBSETS] = [] if look < 20 else found
        if look == 25:
            finish(server)

    assert Watch(stack(server, storage), None, console(), wait=wait).run() == 0


def test_a_cluster_that_does_not_answer_is_reported(server: Played, storage: Path) -> None:
    server.refused = dict.fromkeys(ALL_PATHS, 503)
    with pytest.raises(
        Halt, match=r"expected a cluster that answers, and whose jobs you may read, got:\n  cannot read .*503"
    ):
        status(stack(server, storage), None, console(), json=False)

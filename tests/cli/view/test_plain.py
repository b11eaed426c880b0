from dataclasses import replace

from cli.view import plain, reduce
from cli.view.snapshot import Phase
from tests.cli.view import recordings
from tests.cli.view.recordings import START


def test_each_change_of_a_phase_is_one_line() -> None:
    assert plain.lines(recordings.building(), recordings.starting()) == [
        "programs: 10 ready, done in 0.1 s",
        "control plane: API server, begins",
    ]
    assert plain.lines(recordings.starting(), recordings.starting()) == []


def test_the_engine_tells_a_line_for_every_five_resources() -> None:
    snapshot = recordings.applying()
    begun = reduce.engine(snapshot, Phase.INFRASTRUCTURE, recordings.engine_event("resourcePreEvent", "job"))
    fifth = reduce.engine(begun, Phase.INFRASTRUCTURE, recordings.engine_event("resOutputsEvent", "kueue"))

    assert plain.lines(snapshot, begun) == []
    assert plain.lines(begun, fifth) == ["infrastructure: 5 of 6: JobSet job"]
    assert plain.lines(fifth, recordings.applied()) == ["infrastructure: 6 resources, 6 changed, done in 37 s"]


def test_a_failed_phase_says_so() -> None:
    before = recordings.starting()

    after = before.end(Phase.CONTROL_PLANE, START + 5.1, failed=True)

    assert plain.lines(before, after) == ["control plane: failed in 5.0 s"]


def test_a_waiting_workload_tells_the_reason_on_the_same_line() -> None:
    told = plain.lines(recordings.applied(), recordings.queued())

    assert told == [f"queue: position 2 in research: {recordings.NO_QUOTA}, begins"]


def test_a_whole_training_is_about_twenty_step_lines() -> None:
    snapshot, told = recordings.compiling(), list[str]()
    for line in recordings.log(range(1, 201)):
        after = recordings.tell_log(snapshot, [line])
        told += plain.lines(snapshot, after)
        snapshot = after

    steps = [line for line in told if "loss" in line and "step" in line]
    assert len(steps) == 20
    assert steps[0] == "training: step 10 of 200, loss 4.8292, 41234 tokens/s, 9.4 s left"
    assert told[0] == "training: run r1 new"
    assert "training: held-out loss 4.1000" in told
    assert "training: checkpoint of step 25 saved" in told


def test_a_restart_names_the_host_and_its_exit() -> None:
    before = replace(recordings.restarted(), restarts=0)

    assert plain.lines(before, recordings.restarted()) == ["restart 1: host slice-1-0 exited 137 (SIGKILL)"]


def test_all_lines_are_ascii() -> None:
    assert all(line.isascii() for line in plain.lines(recordings.building(), recordings.completed()))


def test_a_pod_without_a_node_tells_what_the_scheduler_says_once() -> None:
    why = "0/4 nodes are available: 2 node(s) had untolerated taint(s)"
    first, second = (recordings.pod(1, host, "Pending", attempt=1, created=72) for host in (0, 1))
    for found in (first, second):
        found["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": why}]
    before = recordings.compiling()
    waiting = reduce.pod(before, first, START + 73, False)
    both = reduce.pod(waiting, second, START + 73, False)

    assert plain.lines(before, waiting) == [f"pods: slice-1-0 without a node: {why}"]
    assert plain.lines(before, both) == [f"pods: slice-1-0, slice-1-1 without a node: {why}"]
    assert plain.lines(both, both) == []

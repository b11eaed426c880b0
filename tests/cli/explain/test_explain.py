"""One job for each cause, and what is said of it."""

from dataclasses import replace

import pytest

from cli.deployed import JobPlace
from cli.explain.exits import MEANINGS
from cli.explain.explain import explain
from cli.explain.finding import Cause, Finding
from cli.observed.files import Failure, Files
from cli.observed.kind import Kind
from cli.observed.objects import Condition
from cli.observed.pod import Pod
from cli.observed.snapshot import Event, Job, Node, Queue, Snapshot, Workload
from cli.observed.training import Training
from workloads.spec import ExitCode

NOW = 10_000.0
PLACE = JobPlace("tiny", "research", "research")
NO_QUOTA = (
    "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor v6e-2x4,"
    " 8 more needed"
)
TOO_LARGE = (
    "couldn't assign flavors to pod set slice: insufficient quota for google.com/tpu in flavor v6e-2x4, previously"
    " considered podsets requests (0) + current podset request (24) > maximum capacity (16)"
)
NO_ROOM = "couldn't assign flavors to pod set slice: topology \"slices\" doesn't allow to fit any of 4 pod(s)"
PREEMPTED = (
    "Preempted to accommodate a workload (UID: uid-other, JobUID: uid-job) due to prioritization in the ClusterQueue"
)


def said(kind: str, holds: bool, reason: str = "", message: str = "", since: float = 9_000.0) -> Condition:
    return Condition(kind, holds, reason, message, since)


def workload(*conditions: Condition, admitted: bool = False, name: str = "tiny") -> Workload:
    return Workload(
        name=f"jobset-{name}",
        uid=f"uid-{name}",
        namespace="research",
        queue="research",
        owner=name,
        priority=500,
        chips=16,
        created=8_000.0,
        active=True,
        admitted_by="research" if admitted else "",
        flavors=("v6e-2x4",) if admitted else (),
        requeue_at=None,
        evictions={},
        checks=(),
        conditions=conditions,
    )


ADMITTED = workload(said("QuotaReserved", True), said("Admitted", True), admitted=True)
JOB = Job(PLACE, uid="uid", created=8_000.0, slices=2, hosts=4, max_restarts=3, workload=ADMITTED)


def pod(host: str, phase: str = "Running", **changes: object) -> Pod:
    made = Pod(f"tiny-{host}-x", f"uid-{host}", "research", host, phase, f"node-{host}", 0, 9_000.0, 9_001.0, None, "")
    return replace(made, **changes)


PODS = tuple(pod(f"slice-{slice_index}-{host}") for slice_index in (0, 1) for host in (0, 1))
NODES = tuple(
    Node(pod.node, f"pool-{place // 2}", "2x4", 4, True, "", 0.0, False, "", ()) for place, pod in enumerate(PODS)
)


def findings(job: Job, *, nodes: tuple[Node, ...] = NODES, others: tuple[Workload, ...] = ()) -> tuple[Finding, ...]:
    queue = Queue("research", "research", (), 1, 0, (said("Active", True, "Ready"),))
    own = (job.workload,) if job.workload else ()
    return explain(
        Snapshot("dev", "-s dev", "dev", NOW, nodes=nodes, queues=(queue,), workloads=(*own, *others), jobs=(job,)), job
    )


def only(job: Job, *, nodes: tuple[Node, ...] = NODES, others: tuple[Workload, ...] = ()) -> Finding:
    (found,) = findings(job, nodes=nodes, others=others)
    return found


def test_a_job_that_is_not_there_is_submitted_anew() -> None:
    found = only(Job(PLACE))
    assert (found.cause, found.next) == (Cause.MISSING, ("submit it: pulumi up --refresh --stack dev",))


def test_a_job_that_names_no_queue_waits_for_ever() -> None:
    found = only(replace(JOB, place=JobPlace("tiny", "research", ""), workload=None, suspended=True))
    assert (found.cause, "names no queue" in found.what) == (Cause.NO_WORKLOAD, True)


def test_a_job_that_kueue_has_not_looked_at_is_told_with_the_queues_there_are() -> None:
    found = only(replace(JOB, workload=None, suspended=True))
    assert (found.cause, found.evidence[-1]) == (Cause.NO_WORKLOAD, "queues there are: research")


def test_who_has_the_chips_that_a_job_waits_for_is_named() -> None:
    waiting = workload(said("QuotaReserved", False, "Pending", NO_QUOTA))
    other = workload(said("QuotaReserved", True), admitted=True, name="other")
    found = only(replace(JOB, workload=waiting, position=2), others=(other,))
    assert found.cause is Cause.QUOTA_TAKEN
    assert found.what == "The job asks for 16 chips and 8 of them are taken. It is number 2 in line."
    assert found.evidence == (NO_QUOTA, "research/other has 16 chips, priority 500")
    assert found.next == ("let it go first: multislice priority tiny high -s dev",)
    assert found.since == 9_000.0


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (TOO_LARGE, Cause.QUOTA_TOO_SMALL),
        (NO_ROOM, Cause.NO_SLICE_FREE),
        ("something that nobody has seen yet", Cause.NOT_ADMITTED),
    ],
)
def test_each_refusal_of_the_queue_has_its_cause(message: str, cause: Cause) -> None:
    found = only(replace(JOB, workload=workload(said("QuotaReserved", False, "Pending", message)), position=1))
    assert (found.cause, found.evidence) == (cause, (message,))


@pytest.mark.parametrize(("reason", "words"), [("Stopped", "it is on hold"), ("FlavorNotFound", "it is not ready")])
def test_a_queue_that_admits_nothing_comes_before_what_it_says_of_the_job(reason: str, words: str) -> None:
    job = replace(JOB, workload=workload(said("QuotaReserved", False, "Inadmissible", "is inactive")))
    queue = Queue("research", "research", (), 1, 0, (said("Active", False, reason, "Can't admit new workloads"),))
    (found,) = explain(Snapshot("dev", "-s dev", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert (found.cause, words in found.what) == (Cause.QUEUE_CLOSED, True)


def test_a_job_that_rests_after_an_eviction_is_told_when_it_is_looked_at_again() -> None:
    found = only(replace(JOB, workload=replace(workload(), requeue_at=NOW + 60)))
    assert (found.cause, "in 60 s" in found.what) == (Cause.BACKING_OFF, True)


def test_slices_that_google_cloud_has_yet_to_bring_are_told() -> None:
    reserved = replace(workload(said("QuotaReserved", True), admitted=True), checks=(("queued", "Pending", "ETA"),))
    found = only(replace(JOB, workload=reserved))
    assert (found.cause, found.evidence) == (Cause.CAPACITY_PENDING, ("queued: Pending: ETA",))


def test_a_preempted_job_is_told_by_whom_and_why() -> None:
    evicted = workload(
        said("Evicted", True, "Preempted", PREEMPTED),
        said("Preempted", True, "InClusterQueue", PREEMPTED),
        said("QuotaReserved", False, "Pending", NO_QUOTA),
    )
    other = workload(said("QuotaReserved", True), admitted=True, name="other")
    preempted, waits = findings(replace(JOB, workload=evicted, position=1), others=(other,))
    assert preempted.cause is Cause.PREEMPTED
    assert "for job other of research, for it has a higher priority in the same queue." in preempted.what
    assert waits.cause is Cause.QUOTA_TAKEN


def test_an_eviction_that_is_over_is_told_as_one() -> None:
    again = replace(
        workload(
            said("Evicted", False, "QuotaReserved", "Previously: exceeded the PodsReady timeout"),
            said("QuotaReserved", True),
            said("Admitted", True),
            admitted=True,
        ),
        evictions={"PodsReadyTimeout": 2},
    )
    found = findings(replace(JOB, workload=again, pods=PODS))[0]
    assert (found.cause, found.next) == (Cause.EVICTED, ())
    assert found.what.endswith("its hosts did not all become ready in time. It was admitted again since.")
    assert found.evidence == ("exceeded the PodsReady timeout", "PodsReadyTimeout: 2 times so far")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "has used up job.max_hours"),
        ("DeactivatedDueToRequeuingLimitExceeded", "as often as scheduling.requeueing.limit allows"),
        ("Deactivated", "until somebody activates it"),
    ],
)
def test_a_job_that_is_never_admitted_again_is_told_why(reason: str, words: str) -> None:
    held = replace(workload(said("Evicted", True, reason, "The workload is deactivated")), active=False)
    found = only(replace(JOB, workload=held))
    assert (found.cause, words in found.what) == (Cause.DEACTIVATED, True)
    assert "multislice resume tiny -s dev" in found.next[0]


def test_what_the_scheduler_says_of_hosts_without_a_node_is_told() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for="0/4 nodes are available")
    found = only(replace(JOB, pods=(*PODS[:3], pending)))
    assert (found.cause, found.what) == (Cause.NO_NODE, "1 host of the job has no node.")
    assert found.evidence == ("slice-1-1: 0/4 nodes are available",)


def test_a_marked_slice_is_named_when_hosts_find_no_other() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for="untolerated taint")
    nodes = (*NODES[:3], replace(NODES[3], bad_host="wrong product", taints=("tpu-multislice.dev/bad-host",)))
    found = only(replace(JOB, pods=(*PODS[:3], pending)), nodes=nodes)
    assert found.cause is Cause.BAD_HOST
    assert f"{NODES[3].name} is marked as one with a bad host: wrong product" in found.evidence


@pytest.mark.parametrize("gone", [False, True])
def test_a_host_on_a_node_that_does_not_answer_is_named(gone: bool) -> None:
    away = () if gone else (replace(NODES[3], ready=False, not_ready="Kubelet stopped posting node status."),)
    found = findings(replace(JOB, pods=PODS), nodes=(*NODES[:3], *away))[0]
    assert (found.cause, "slice-1-1" in found.what) == (Cause.NODE_LOST, True)


def test_a_container_that_does_not_start_is_told_in_kubelets_words() -> None:
    held = replace(PODS[0], phase="Pending", held_up="ImagePullBackOff: no such image")
    found = only(replace(JOB, pods=(held, *PODS[1:])))
    assert (found.cause, found.what) == (Cause.NOT_STARTED, "1 host cannot start the container: ImagePullBackOff.")


def test_a_job_whose_pods_are_refused_is_told_what_refuses_them() -> None:
    refused = Event(9_500.0, "JobSet", "tiny", "JobCreationFailed", 'Unsupported value: "x"', True)
    waits = Event(9_500.0, "Job", "tiny-slice-0", "FailedCreate", "follower pod node selector not found", True)
    found = only(replace(JOB, events=(waits, refused)))
    assert (found.cause, found.evidence) == (Cause.CREATION_REFUSED, ('JobSet tiny: Unsupported value: "x"',))


def test_a_restart_is_told_by_the_host_that_failed_first_and_not_by_those_that_lost_it() -> None:
    records = (
        Failure(9_100.0, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 0, 1),
        Failure(9_101.0, "slice-1-1", ExitCode.CRASH, "ValueError: no such row", 0, 1),
        Failure(100.0, "slice-0-1", ExitCode.OUT_OF_MEMORY, "of an earlier job of that name", 0, 0),
    )
    training = Training(step=5, steps=9, step_ms=1000.0)
    job = replace(JOB, pods=PODS, restarts=1, files=Files(training, last_step_at=NOW - 1, failures=records))
    running, restart = findings(job)
    assert (running.cause, running.what) == (Cause.RUNNING, "The job runs: step 5 of 9, 4.0 s left.")
    assert restart.what == "Restart 1: host slice-1-1 exited 1 (crash): its program crashed."
    assert restart.evidence == ("slice-1-1: ValueError: no such row",)
    assert restart.next == ("read its log: multislice logs tiny -s dev --all --previous",)


def test_a_host_that_was_killed_left_no_record_and_is_told_by_its_pod() -> None:
    killed = replace(PODS[2], phase="Failed", exit_code=137)
    lost = Failure(9_100.0, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 0, 1)
    job = replace(JOB, pods=(*PODS[:2], killed, PODS[3]), restarts=1, files=Files(failures=(lost,)))
    restart = findings(job)[-1]
    assert restart.what.startswith("Restart 1: host slice-1-0 exited 137 (SIGKILL): it was killed without a word")


def test_what_ended_a_start_is_not_what_ended_the_one_before_it_of_the_same_attempt() -> None:
    suspended = Failure(9_050.0, "slice-0-1", ExitCode.PREEMPTED, "SIGTERM", 0, 0)
    lost = Failure(9_100.0, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 0, 1)
    killed = replace(PODS[2], phase="Failed", exit_code=137)
    job = replace(JOB, terminal="Failed", pods=(killed,), files=Files(failures=(suspended, lost)))
    assert findings(job)[0].what.startswith("The job has failed. host slice-1-0 exited 137 (SIGKILL)")


def test_a_word_from_before_the_hosts_were_made_anew_is_of_another_start() -> None:
    suspended = Failure(9_050.0, "slice-0-1", ExitCode.PREEMPTED, "SIGTERM", 0, 0)
    killed = replace(PODS[2], phase="Failed", exit_code=137, created=9_080.0)
    job = replace(JOB, terminal="Failed", pods=(killed,), files=Files(failures=(suspended,)))
    assert findings(job)[0].what.startswith("The job has failed. host slice-1-0 exited 137 (SIGKILL)")


def test_a_restart_of_which_nobody_tells_is_counted() -> None:
    found = findings(replace(JOB, pods=PODS, restarts=2))[-1]
    assert (found.cause, found.what) == (Cause.RESTARTED, "The job restarted 2 times without a word of any host.")


def test_a_failed_job_is_told_with_its_cause_and_the_way_to_try_again() -> None:
    diverged = Failure(9_100.0, "slice-0-0", ExitCode.DIVERGED, "loss is nan", 1, 1)
    over = said("Failed", True, "FailJobSetFailurePolicyAction", "jobset failed")
    job = replace(JOB, terminal="Failed", restarts=1, conditions=(over,), files=Files(failures=(diverged,)))
    found = findings(job)[0]
    assert found.cause is Cause.FAILED
    assert found.what.startswith("The job has failed. host slice-0-0 exited 22 (diverged): loss or gradients")
    assert found.evidence == ("slice-0-0: loss is nan", "JobSet: FailJobSetFailurePolicyAction: jobset failed")
    assert found.next[-1] == "try again from its last checkpoint: multislice retry tiny -s dev"


def test_a_job_that_used_up_its_restarts_is_told_so() -> None:
    job = replace(JOB, terminal="Failed", restarts=4, restarts_counted=3)
    assert "It had restarted 3 times, as often as it may." in findings(job)[0].what


def test_a_job_that_does_no_step_is_silent() -> None:
    training = Training(step=5, steps=9, step_ms=1000.0)
    found = only(replace(JOB, pods=PODS, files=Files(training, last_step_at=NOW - 600)))
    assert (found.cause, "no step has ended for 10 min 00 s" in found.what) == (Cause.SILENT, True)


def test_a_job_that_compiles_is_not_silent() -> None:
    assert only(replace(JOB, pods=PODS)).cause is Cause.RUNNING


def test_a_complete_job_is_told_as_one() -> None:
    job = replace(JOB, terminal="Completed", files=Files(Training(step=9, steps=9)))
    assert (only(job).cause, only(job).what) == (Cause.COMPLETED, "The job is complete, after 9 steps.")


def test_every_exit_code_of_the_trainer_has_a_meaning() -> None:
    assert set(ExitCode) <= MEANINGS.keys()


def test_a_program_of_ones_own_is_not_said_to_train() -> None:
    found = only(replace(JOB, kind=Kind.CONTAINER, pods=PODS))
    assert (found.cause, found.what) == (Cause.RUNNING, "All hosts run the program.")
    assert found.next == ("see what they do: multislice logs tiny -s dev --all --since 10m",)
    done = only(replace(JOB, kind=Kind.CONTAINER, terminal="Completed"))
    assert done.what == "The job is complete."


def test_the_exit_codes_of_a_program_are_its_own_but_for_signals() -> None:
    codes = [
        only(
            replace(
                JOB, kind=Kind.CONTAINER, terminal="Failed", pods=(replace(PODS[0], exit_code=code, phase="Failed"),)
            )
        )
        for code in (22, 137)
    ]
    assert "host slice-0-0 exited 22: its program ended so, and knows why." in codes[0].what
    assert "host slice-0-0 exited 137 (SIGKILL): it was killed without a word" in codes[1].what
    assert codes[0].next[-1] == "try again: multislice retry tiny -s dev"


def test_a_call_that_failed_is_not_submitted_again() -> None:
    raised = Failure(9_100.0, "slice-0-0", ExitCode.FUNCTION_RAISED, "ValueError", 0, 1)
    found = only(replace(JOB, kind=Kind.FUNCTION, terminal="Failed", files=Files(failures=(raised,))))
    assert "the function of the call raised" in found.what
    assert [line for line in found.next if "retry" in line] == []

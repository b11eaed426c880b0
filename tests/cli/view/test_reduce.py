import functools
import itertools
from collections.abc import Callable
from dataclasses import replace

from cli.observed.files import Failure
from cli.view import reduce
from cli.view.snapshot import UP_PHASES, Phase, Snapshot
from tests.cli.api_objects import head, headed
from tests.cli.view import recordings
from tests.cli.view.recordings import HOSTS, START, condition, jobset, pod, see_pods, workload
from workloads.progress import RolledBack, RunStarted


def test_a_pending_workload_shows_its_position_and_kueue_s_reason() -> None:
    span = recordings.queued().spans[Phase.QUEUE]

    assert span.detail == f"position 2 in research\n{recordings.NO_QUOTA}"
    assert span.ended is None


def test_a_higher_priority_moves_a_workload_to_the_front() -> None:
    other = workload("jobset-other-4c5d6", owner="other", created=10)
    urgent = workload(conditions=[condition("QuotaReserved", "False", 50, "no quota")], priority=100)

    snapshot = reduce.workload(recordings.applied(), other, START, False)
    snapshot = reduce.workload(snapshot, urgent, START, False)

    assert snapshot.spans[Phase.QUEUE].detail == "position 1 in research\nno quota"


def test_a_workload_of_another_queue_is_not_ahead_of_ours() -> None:
    other = workload("jobset-other-4c5d6", owner="other", created=10)
    other["spec"]["queueName"] = "production"

    assert reduce.workload(recordings.applied(), other, START, False).waiting == {}


def test_a_workload_that_is_gone_no_longer_waits() -> None:
    other = workload("jobset-other-4c5d6", owner="other", created=10)

    snapshot = reduce.workload(reduce.workload(recordings.applied(), other, START, False), other, START, True)

    assert snapshot.waiting == {}


def test_admission_ends_the_queue_phase_at_the_time_of_the_condition() -> None:
    snapshot = recordings.placing()

    assert (snapshot.spans[Phase.QUEUE].started, snapshot.spans[Phase.QUEUE].ended) == (START + 50, START + 51)
    assert snapshot.spans[Phase.PODS].started == START + 51


def test_preemption_is_told_after_admission() -> None:
    evicted = workload(conditions=[condition("Admitted", "False", 60), condition("Evicted", "True", 60, "Preempted")])

    snapshot = reduce.workload(recordings.placing(), evicted, START + 60, False)

    assert snapshot.spans[Phase.QUEUE].detail == "evicted\nPreempted"


def test_the_order_in_which_the_watches_answer_does_not_matter() -> None:
    begun = replace(recordings.applied(), pod_count=0)
    events: list[Callable[[Snapshot], Snapshot]] = [
        lambda now: reduce.jobset(now, jobset(), START, False),
        lambda now: reduce.workload(now, workload(conditions=recordings.ADMITTED), START, False),
        lambda now: see_pods(now, [pod(*host) for host in HOSTS]),
    ]

    ends = [functools.reduce(lambda now, event: event(now), order, begun) for order in itertools.permutations(events)]

    assert all(end == recordings.compiling() for end in ends)


def test_by_pathways_training_begins_when_the_head_has_started_as_well() -> None:
    snapshot = reduce.jobset(recordings.placing(), headed(), START + 52, False)
    without = see_pods(snapshot, [pod(*host) for host in HOSTS])
    assert without.spans[Phase.PODS].detail == "4 of 5 started"

    snapshot = see_pods(without, [head(created=60)])

    assert list(snapshot.pods)[:2] == [("head", 0, 0), ("slice", 0, 0)]
    assert snapshot.spans[Phase.PODS].ended == START + 61


def test_training_begins_when_the_last_host_has_started() -> None:
    late = pod(1, 1, created=60)

    snapshot = see_pods(recordings.placing(), [pod(0, 0), pod(0, 1), pod(1, 0), late])

    assert snapshot.spans[Phase.PODS].ended == START + 61
    assert snapshot.spans[Phase.TRAINING].started == START + 61


def test_pods_that_end_later_do_not_reopen_the_pods_phase() -> None:
    snapshot = see_pods(recordings.compiling(), [pod(0, 0, deleting=True)])

    assert snapshot.spans[Phase.PODS] == recordings.compiling().spans[Phase.PODS]


def test_the_first_host_that_fails_is_the_cause_of_the_restart() -> None:
    late, early = pod(0, 1, "Failed", exit_code=1, ended=62), pod(1, 0, "Failed", exit_code=137, ended=61)

    cause = see_pods(recordings.compiling(), [late, early]).first_cause(0)

    assert cause
    assert (cause.host, cause.code) == ("slice-1-0", 137)


def test_a_host_that_is_seen_first_is_not_the_cause_when_it_only_lost_another_one() -> None:
    lost, killed = pod(0, 1, "Failed", exit_code=134, ended=61), pod(1, 1, "Failed", exit_code=137, ended=62)

    cause = see_pods(recordings.compiling(), [lost, killed]).first_cause(0)

    assert cause
    assert (cause.host, cause.code) == ("slice-1-1", 137)


def test_a_host_that_the_others_heard_of_is_the_cause_though_it_ends_last() -> None:
    ends = [pod(0, 1, "Failed", exit_code=24, ended=61), pod(1, 1, "Failed", exit_code=24, ended=64)]
    record = Failure(START + 60, "tiny-slice-1-1.tiny", 24, "the step did not end", 0, 0)

    cause = replace(see_pods(recordings.compiling(), ends), records=(record,)).first_cause(0)

    assert cause
    assert cause.host == "slice-1-1"


def test_a_record_with_fractions_of_a_second_comes_before_pods_that_ended_in_the_same_second() -> None:
    ends = [pod(0, 1, "Failed", exit_code=24, ended=61), pod(1, 1, "Failed", exit_code=24, ended=64)]
    record = Failure(START + 61.7, "tiny-slice-1-1.tiny", 24, "the step did not end", 0, 0)

    cause = replace(see_pods(recordings.compiling(), ends), records=(record,)).first_cause(0)

    assert cause
    assert cause.evidence == ("tiny-slice-1-1.tiny: the step did not end",)


def test_a_pod_that_is_ended_by_its_deletion_is_no_cause() -> None:
    snapshot = see_pods(recordings.compiling(), [pod(0, 0, "Failed", exit_code=143, deleting=True)])

    assert snapshot.failed == ()


def test_the_end_of_a_replaced_pod_does_not_hide_its_successor() -> None:
    snapshot = see_pods(recordings.compiling(), [pod(0, 0, attempt=1, created=72)])

    snapshot = reduce.pod(snapshot, pod(0, 0, "Failed", exit_code=143), START + 73, True)

    first = snapshot.pods["slice", 0, 0]
    assert (first.attempt, first.phase) == (1, "Running")


def test_a_deleted_pod_without_successor_leaves_the_table() -> None:
    snapshot = reduce.pod(recordings.compiling(), pod(1, 1), START + 60, True)

    assert list(snapshot.pods) == [("slice", 0, 0), ("slice", 0, 1), ("slice", 1, 0)]


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    snapshot = see_pods(recordings.compiling(), [pod(0, 0, deleting=True)])

    assert snapshot.pods["slice", 0, 0].phase == "Terminating"


def test_a_view_that_begins_after_a_restart_does_not_count_the_first_attempt_as_waiting() -> None:
    admitted = reduce.workload(recordings.applied(), workload(conditions=recordings.ADMITTED), START, False)

    snapshot = see_pods(admitted, [pod(*host, attempt=1, created=3600) for host in HOSTS])

    assert snapshot.spans[Phase.PODS].seconds(START + 9999) == 0


def test_steps_after_a_resume_replace_those_that_were_lost() -> None:
    losses = recordings.restarted().training.losses

    assert [step for step, _ in losses] == list(range(1, 151))


def test_steps_after_a_rollback_replace_those_that_were_left() -> None:
    rollback = RolledBack(1, 3, 120, 100, 100, 119)

    training = recordings.tell_log(recordings.training(), [rollback, *recordings.log(range(101, 103))[1:]]).training

    assert [step for step, _ in training.losses] == list(range(1, 103))
    assert training.step == 102


def test_a_log_read_again_from_its_start_changes_nothing() -> None:
    once = recordings.training()

    again = recordings.tell_log(once, recordings.log(range(1, 121)))

    assert replace(again.training, loss=0) == replace(once.training, loss=0)


def test_the_run_s_outcome_is_told() -> None:
    complete = recordings.tell_log(recordings.compiling(), [RunStarted("r1", "already complete", 200, 200)])

    assert recordings.training().training.run == "new"
    assert recordings.restarted().training.run == "resumed at step 100"
    assert complete.training.run == "already complete"


def test_other_lines_of_the_log_change_nothing() -> None:
    before = recordings.training()

    assert reduce.log_line(before, "WARNING: something else at step 12") == before


def test_a_job_that_was_complete_before_the_view_began_closes_all_phases() -> None:
    snapshot = reduce.jobset(recordings.applied(), jobset(0, "Completed", ended=95), START + 200, False)

    assert snapshot.outcome is not None
    assert snapshot.outcome.state == "Completed"
    assert snapshot.running() is None
    assert snapshot.spans[Phase.TRAINING].ended == START + 95


def test_a_deleted_jobset_is_a_failure() -> None:
    snapshot = reduce.jobset(recordings.training(), jobset(), START + 90, True)

    assert snapshot.outcome is not None
    assert (snapshot.outcome.state, snapshot.outcome.reason) == ("Failed", "Deleted")


def test_pulumi_s_errors_are_kept_without_colour_marks() -> None:
    message = "<{%fg 1%}>error: <{%reset%}>quota exceeded\n"

    snapshot = reduce.engine(recordings.applying(), Phase.INFRASTRUCTURE, recordings.error_event(message))

    assert snapshot.resources.errors == ("error: quota exceeded",)


def test_the_plan_gives_the_total_of_the_update() -> None:
    planned = reduce.engine_done(recordings.planning(), Phase.PLAN)

    assert planned.resources.total == len(recordings.TYPE_OF)
    assert planned.spans[Phase.PLAN].detail == "6 resources, 6 to change"


def test_what_a_chart_holds_is_not_counted() -> None:
    event = recordings.engine_event("resourcePreEvent", "kueue")
    assert event.resource_pre_event is not None
    event.resource_pre_event.metadata.urn = "urn:pulumi:local::p::kubernetes:helm.sh/v4:Chart$kubernetes:v1:Service::s"

    snapshot = reduce.engine(recordings.applying(), Phase.INFRASTRUCTURE, event)

    assert snapshot.resources == recordings.applying().resources


def test_the_stack_and_its_providers_are_not_counted_as_resources() -> None:
    begun = Snapshot("", UP_PHASES).begin(Phase.PLAN, START)
    event = recordings.engine_event("resourcePreEvent", "network")
    assert event.resource_pre_event is not None
    for kind in ("pulumi:pulumi:Stack", "pulumi:providers:gcp"):
        event.resource_pre_event.metadata.type = kind
        assert reduce.engine(begun, Phase.PLAN, event).resources.active == ()


def test_labels_name_the_kind_and_the_resource() -> None:
    assert reduce.label("urn:pulumi:local::p::a:b:C$gcp:container/nodePool:NodePool::slice-0") == "NodePool slice-0"
    assert reduce.label("urn:pulumi:local::p::gcp:compute/network:Network::network") == "Network network"

"""The job of a whole stack file before its queues."""

from collections.abc import Sequence

from infra.review.admission.manifests import Object
from infra.review.admission.rehearsal import Verdict, rehearse_stack, situation, without_deleted
from infra.stack.settings.read import parse
from infra.stack.settings.stack import Settings
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values
from tests.infra.review.known import running

FIRST = "v6e-4x4-on-demand-trillium"
OWN = "v6e-2x4-on-demand-trillium"


def _verdict(settings: Settings, live: Sequence[Object] | None) -> Verdict:
    (verdict,) = rehearse_stack(settings, live).values()
    return verdict


def test_running_jobs_count_and_an_earlier_one_of_the_job_itself_does_not(two_teams: Values) -> None:
    teams = two_teams["teams"]
    settings = parse(two_teams | {"teams": teams | {"product": teams["product"] | {"admission": "open"}}})
    itself = running("research", "research", FIRST, 64, "ablation", 1000)
    assert _verdict(settings, [itself]).outcome == "admitted"
    urgent = running("research", "research", FIRST, 48, "urgent", 1000)
    assert _verdict(settings, [urgent]).outcome == "waits"
    low = running("research", "research", FIRST, 48, "low", 100)
    assert [gone.workload for gone in _verdict(settings, [low]).preempted] == ["research/low"]


def test_a_job_goes_to_the_next_zone_when_the_slices_of_its_own_are_taken(values: Values) -> None:
    values["slices"]["spare"] = values["slices"]["trillium"] | {"zone": "us-east5-a"}
    values["teams"]["research"]["quota"] |= {"spare": 16}
    values["job"]["slices"]["fallback"] = ["spare"]
    settings = parse(values)
    near, far = "v6e-2x4-spot-trillium", "v6e-2x4-spot-spare"
    assert _verdict(settings, []).flavors == (near,)
    taken = running("research", "research", near, 16)
    assert _verdict(settings, [taken]).flavors == (far,)


def test_what_capacity_leaves_open_is_said() -> None:
    staging = stack_values("staging")
    (said,) = _verdict(parse(staging), []).unknown
    assert "flex-start" in said
    aware = {**stack_values("dev"), "scheduling": {"placement": "topology-aware"}}
    (said,) = _verdict(parse(aware), []).unknown
    assert "free hosts" in said


def test_jobs_are_rehearsed_one_behind_the_other_in_the_order_of_their_names(values: Values) -> None:
    job = unnamed(values)
    values["jobs"] = {"first": job, "second": job | {"priority": "low"}, "third": job | {"priority": "high"}}
    verdicts = rehearse_stack(parse(values), [])
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {
        "first": "admitted",
        "second": "waits",
        "third": "preempts",
    }
    assert [holder.workload for holder in verdicts["second"].holders] == ["research/first"]
    earlier = [running("research", "research", FIRST, 16, name) for name in values["jobs"]]
    assert rehearse_stack(parse(values), earlier) == verdicts


def test_a_job_whose_jobset_stays_keeps_its_chips_or_its_place_in_the_queue(values: Values) -> None:
    job = unnamed(values)
    values["slices"]["trillium"]["capacity"] = "on-demand"
    values["jobs"] = {"first": job, "second": job, "third": job | {"paused": True}}
    live = [running("research", f"research.{name}", OWN, 16, name) for name in ("second", "third")]
    live.append(running("research", "research.first", OWN, 16, "first") | {"status": {}})
    for each in live:
        each["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    for kept in (("first", "second", "third"), ("second",)):
        verdicts = rehearse_stack(parse(values), live, kept)
        assert [(verdict.outcome, verdict.holders != ()) for verdict in verdicts.values()] == [
            ("waits", True),
            ("runs", False),
            ("paused", True),
        ]
        assert "runs already" in verdicts["second"].lines[0]
        assert [holder.workload for holder in verdicts["first"].holders] == ["research/second"]
    draining = {"research": values["teams"]["research"] | {"admission": "drain"}}
    assert rehearse_stack(parse(values | {"teams": draining}), live, ("second",))["second"].outcome == "waits"


def test_jobs_that_the_plan_deletes_hold_no_chips_and_those_of_members_do(values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = "on-demand"
    settings = parse(values)
    removed, by_hand = (running("research", queue, OWN, 16, "old") for queue in ("research.old", "research"))
    assert _verdict(settings, without_deleted(settings, [removed])).outcome == "admitted"
    assert _verdict(settings, without_deleted(settings, [by_hand])).outcome == "waits"
    (job,) = settings.jobs
    kept = [running("research", f"research.{job}", OWN, 16, job)]
    assert without_deleted(settings, kept) == kept


def test_a_paused_job_takes_no_chips_from_those_behind_it(values: Values) -> None:
    job = unnamed(values)
    verdicts = rehearse_stack(parse(values | {"jobs": {"first": job | {"paused": True}, "second": job}}), [])
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {"first": "paused", "second": "admitted"}
    (said,) = verdicts["first"].lines
    assert "is paused and holds no chips" in said


def test_a_job_by_hand_waits_in_its_teams_queue_and_the_stacks_in_queues_of_their_own(values: Values) -> None:
    waiting: list[Object] = []
    for name, queue in (("by-hand", "research"), ("earlier", "research.earlier")):
        waiting.append(running("research", queue, FIRST, 16, name) | {"status": {}})
    settings = parse(values)
    removed = settings.jobs["tiny"].model_copy(update={"name": "earlier"})
    jobs = {**settings.jobs, "earlier": removed}
    found = situation(settings.model_copy(update={"jobs": jobs}), waiting)
    assert [workload.name for workload in found.workloads] == ["research/by-hand"]

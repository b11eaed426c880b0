"""The job of a whole stack file before its queues."""

import pytest

from infra.admission.manifests import Object
from infra.admission.stack import newcomer, rehearse_stack
from infra.settings import parse
from tests.infra.recording import Values, stack_values

TPU = "google.com/tpu"
FIRST, SECOND = "v6e-4x4-on-demand-trillium", "7x-2x2x2-spot-ironwood"


def _live(namespace: str, job: str, queue: str, chips: int, priority: int, flavor: str) -> Object:
    """A workload that runs."""
    condition = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = {"containers": [{"resources": {"requests": {TPU: str(chips)}}}]}
    return {
        "metadata": {
            "name": f"jobset-{job}",
            "namespace": namespace,
            "uid": job,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "JobSet", "name": job}],
        },
        "spec": {"podSets": [{"name": "slice", "count": 1, "template": {"spec": pod}}], "priority": priority},
        "status": {
            "conditions": [condition],
            "admission": {"clusterQueue": queue, "podSetAssignments": [{"flavors": {TPU: flavor}}]},
        },
    }


@pytest.mark.parametrize("name", ["local", "dev", "staging", "prod"])
def test_the_job_of_every_stack_is_admitted_by_an_idle_cluster(name: str) -> None:
    settings = parse(stack_values(name))
    verdict = rehearse_stack(settings, [])
    assert verdict.outcome == "admitted"
    assert verdict.chips == settings.job.slices.count * settings.job_group.shape.chips


def test_a_jobs_own_flavor_alone_will_do_unless_it_may_fall_back(two_teams: Values) -> None:
    (pods,) = newcomer(parse(two_teams)).pod_sets
    assert pods.flavors == {FIRST}


def test_without_a_cluster_it_is_said_that_none_was_asked(two_teams: Values) -> None:
    settings = parse(two_teams)
    assert rehearse_stack(settings, []).unknown == ()
    (said,) = rehearse_stack(settings, None).unknown
    assert "no cluster was asked" in said


def test_running_jobs_count_and_an_earlier_one_of_the_job_itself_does_not(two_teams: Values) -> None:
    two_teams = {
        **two_teams,
        "teams": {**two_teams["teams"], "product": {**two_teams["teams"]["product"], "admission": "open"}},
    }
    settings = parse(two_teams)
    itself = _live("research", "ablation", "research", 64, 1000, FIRST)
    assert rehearse_stack(settings, [itself]).outcome == "admitted"
    urgent = _live("research", "urgent", "research", 48, 1000, FIRST)
    assert rehearse_stack(settings, [urgent]).outcome == "waits"
    low = _live("research", "low", "research", 48, 100, FIRST)
    assert [gone.workload for gone in rehearse_stack(settings, [low]).preempted] == ["research/low"]


def test_what_capacity_leaves_open_is_said() -> None:
    staging = stack_values("staging")
    (said,) = rehearse_stack(parse(staging), []).unknown
    assert "flex-start" in said
    aware = {**stack_values("dev"), "scheduling": {"placement": "topology-aware"}}
    (said,) = rehearse_stack(parse(aware), []).unknown
    assert "free hosts" in said

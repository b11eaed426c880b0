"""Quotas of several teams on real Kueue: who borrows, who lends, who falls back, who waits, and how it all goes.

The stack takes over the sandbox from whatever was in it, and leaves it empty. Its own job belongs to
a team that is on hold, so nothing trains; the jobs here sleep.
"""

from collections.abc import Generator
from typing import Any

import pytest
import yaml

from infra.cluster import running_jobs
from infra.review.admission.rehearsal import rehearse, situation
from infra.stack.names import NO_JOB_RUNS, QUEUE_LABEL
from infra.stack.settings.read import parse
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from tests.chain.rehearsals import disagreements
from tests.chain.rivals import idle_jobset
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import values_of

pytestmark = pytest.mark.complete

FIRST, SECOND = "v6e-2x4-tas-on-demand-first", "v6e-2x4-tas-spot-second"
SECTIONS = {
    "slices": {
        "first": {"generation": "v6e", "topology": "2x4", "count": 2, "capacity": "on-demand"},
        "second": {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot", "zone": "us-east5-a"},
    },
    "scheduling": {"placement": "topology-aware", "fair_sharing": True, "requeueing": {"limit": 3}},
    "teams": {
        "lender": {"namespace": "lender", "quota": {"first": {"chips": 12, "lending_limit": 4}}},
        "borrower": {
            "namespace": "borrower",
            "quota": {"first": {"chips": 4, "borrowing_limit": 2000}, "second": 8},
            "preemption": {"reclaim": "never"},
            "weight": 0.5,
        },
        "guest": {"namespace": "guest", "quota": {"second": {"chips": 0, "borrowing_limit": 4}}},
        "research": {"namespace": "research", "quota": {"first": 0}, "admission": "hold"},
    },
}


@pytest.fixture(scope="module")
def engine(chain: Chain) -> Generator[Engine]:
    """The engine on a stack of four teams, which is up."""
    stack_file = chain.folder / "queues" / "Pulumi.local.yaml"
    content = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())
    content["config"] |= {f"tpu-multislice:{name}": section for name, section in SECTIONS.items()}
    content["config"]["tpu-multislice:job"] |= {"name": "held", "slices": {"group": "first", "count": 1}}
    stack_file.parent.mkdir()
    stack_file.write_text(yaml.safe_dump(content))
    engine = Engine(chain.site, chain.programs, stack_file)
    engine.up(ignore)
    yield engine
    engine.destroy(ignore, [NO_JOB_RUNS])


@pytest.fixture
def teams(chain: Chain, engine: Engine) -> Generator[Chain]:
    """The sandbox with the stack up; jobs that a test submits are gone after it."""
    yield chain
    for team in ("borrower", "guest"):
        chain.kubectl("delete", "jobset", "-n", team, "--all", "--cascade=foreground")


def test_every_queue_is_active_but_the_one_on_hold(teams: Chain) -> None:
    assert {queue["metadata"]["name"]: _reason(queue) for queue in teams.objects("clusterqueues")} == {
        "lender": "Ready",
        "borrower": "Ready",
        "guest": "Ready",
        "research": "Stopped",
    }
    flavors = teams.objects("resourceflavors")
    assert {flavor["metadata"]["name"]: flavor["spec"]["topologyName"] for flavor in flavors} == {
        FIRST: "slices",
        SECOND: "slices",
    }
    assert [cohort["metadata"]["name"] for cohort in teams.objects("cohorts")] == ["tpu"]


def test_the_api_server_keeps_quotas_limits_and_weights_as_they_are_declared(teams: Chain, engine: Engine) -> None:
    declared = {
        item["inputs"]["metadata"]["name"]: item["inputs"]["spec"]
        for item in engine.resources()
        if item["type"].endswith(":ClusterQueue")
    }
    assert declared["borrower"]["fairSharing"] == {"weight": "500m"}
    for queue in teams.objects("clusterqueues"):
        assert queue["spec"] == queue["spec"] | declared[queue["metadata"]["name"]]


def test_a_job_of_a_queue_on_hold_waits_although_its_chips_are_free(teams: Chain) -> None:
    _waits(teams, "held")


def test_a_team_borrows_up_to_its_limit_and_no_further(teams: Chain) -> None:
    _submit(teams, "guest", "one")
    _wait_for(teams, "one", SECOND)
    _submit(teams, "guest", "two")
    _waits(teams, "two")


def test_a_job_takes_its_own_chips_then_lent_ones_and_then_the_next_flavor(teams: Chain) -> None:
    for name, flavor in (("own", FIRST), ("lent", FIRST), ("next", SECOND), ("last", SECOND)):
        _submit(teams, "borrower", name)
        _wait_for(teams, name, flavor)
    # The lender has eight chips left of its twelve and lends no more.
    _submit(teams, "borrower", "none")
    _waits(teams, "none")


def test_a_job_goes_to_the_next_zone_when_the_slices_of_the_first_are_missing(teams: Chain) -> None:
    zones = {
        _label(node, "slice-group"): _label(node, "topology.kubernetes.io/zone") for node in teams.objects("nodes")
    }
    assert zones == {None: "us-east5-b", "first": "us-east5-b", "second": "us-east5-a"}
    # Kueue counts a node that is cordoned as little as one that is not there.
    teams.kubectl("cordon", "-l", "slice-group=first")
    try:
        _submit(teams, "borrower", "far")
        _wait_for(teams, "far", SECOND)
    finally:
        teams.kubectl("uncordon", "-l", "slice-group=first")


def test_a_job_that_names_no_queue_does_not_run(teams: Chain) -> None:
    teams.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(idle_jobset("stray", "borrower", {})))
    _waits(teams, "stray")
    (stray,) = (found for found in teams.objects("jobsets") if found["metadata"]["name"] == "stray")
    assert stray["spec"]["suspend"] is True


def test_a_clusters_workloads_are_rehearsed_with_as_kueue_counts_them(teams: Chain) -> None:
    _submit(teams, "borrower", "own")
    _wait_for(teams, "own", FIRST)
    settings = parse(values_of(teams.folder / "queues" / "Pulumi.local.yaml"))
    found = situation(settings, running_jobs.workloads(teams.api))
    (running,) = found.workloads
    assert (running.name, running.queue, running.usage) == ("borrower/own", "borrower", {FIRST: 4})
    verdict = rehearse(found, running.model_copy(update={"name": "borrower/lent", "admission": None}))
    assert (verdict.outcome, verdict.flavors) == ("admitted", (FIRST,))
    assert [(loan.chips, loan.idle) for loan in verdict.borrowed] == [(4, {"lender": 4})]


def test_admissions_under_fair_sharing_are_rehearsed_as_kueue_decides_them(teams: Chain) -> None:
    assert disagreements(teams, fair_sharing=True) == []


def test_destroy_begins_with_jobs_and_slices_and_the_rest_goes_with_the_cluster(teams: Chain, engine: Engine) -> None:
    _submit(teams, "borrower", "running")
    _wait_for(teams, "running", FIRST)
    operations = Operations()
    engine.destroy(operations, [NO_JOB_RUNS])
    ended = [name for operation, name in operations.ended if operation == "delete"]
    order = ["in-use", "job-held", "slices-first-0", "cluster", "network"]
    assert [name for name in ended if name in order] == order
    assert not {team for team in SECTIONS["teams"]} & {item["metadata"]["name"] for item in teams.objects("namespaces")}
    assert "kueue.x-k8s.io" not in teams.kubectl("get", "crd")


def _submit(chain: Chain, team: str, *names: str) -> None:
    jobsets = [idle_jobset(name, team, {QUEUE_LABEL: team}) for name in names]
    chain.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(jobsets))


def _workloads(chain: Chain, owner: str) -> list[dict[str, Any]]:
    return [item for item in chain.objects("workloads") if item["metadata"]["ownerReferences"][0]["name"] == owner]


def _flavors(chain: Chain, owner: str) -> list[str | None]:
    admissions = [workload.get("status", {}).get("admission") for workload in _workloads(chain, owner)]
    return [found["podSetAssignments"][0]["flavors"]["google.com/tpu"] if found else None for found in admissions]


def _wait_for(chain: Chain, owner: str, flavor: str) -> None:
    wait_until(lambda: _flavors(chain, owner) == [flavor], lambda: yaml.safe_dump(_workloads(chain, owner)))


def _label(node: dict[str, Any], label: str) -> str | None:
    return node["metadata"]["labels"].get(label)


def _waits(chain: Chain, owner: str) -> None:
    """Kueue has looked at the job and not admitted it."""

    def refused() -> bool:
        conditions = [item for workload in _workloads(chain, owner) for item in _conditions(workload)]
        return any(item["type"] == "QuotaReserved" and item["status"] == "False" for item in conditions)

    wait_until(refused, lambda: yaml.safe_dump(_workloads(chain, owner)))
    assert _flavors(chain, owner) == [None]


def _reason(queue: dict[str, Any]) -> str:
    (active,) = [condition for condition in _conditions(queue) if condition["type"] == "Active"]
    return active["reason"]


def _conditions(item: dict[str, Any]) -> list[dict[str, Any]]:
    return item.get("status", {}).get("conditions", [])

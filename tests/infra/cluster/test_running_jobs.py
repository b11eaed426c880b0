"""Which jobs a change would end, and what holds an object that is being deleted."""

from collections.abc import Generator

import pytest

from infra.cluster import running_jobs
from tests.cli.api_objects import ADMITTED, condition, pod, workload
from tests.cli.api_server import Played, client, playing

PODS, WORKLOADS = "/api/v1/pods", "/apis/kueue.x-k8s.io/v1beta2/workloads"
FLAVOR = "v6e-2x4-on-demand-trillium"


@pytest.fixture
def busy() -> Generator[Played]:
    """A cluster in which the submitted job `tiny` runs on two pools, `young` is starting, and two hold no chips."""
    server = Played()
    tiny, young = workload(conditions=ADMITTED), workload("jobset-young", ADMITTED, "young")
    for found in (tiny, young):
        found["status"]["admission"]["podSetAssignments"] = [{"flavors": {"google.com/tpu": FLAVOR}}]
    ended = workload("jobset-ended", [*ADMITTED, condition("Finished", "True", 60)], "ended")
    waiting = workload("jobset-waiting", owner="waiting")
    del waiting["status"]["admission"]
    server.collections[WORKLOADS] = [tiny, young, ended, waiting]
    server.collections[PODS] = [pod(0, 0), pod(1, 0)]
    server.collections["/api/v1/nodes"] = [
        {"metadata": {"name": f"gke-slice-{index}-0", "labels": {"cloud.google.com/gke-nodepool": f"trillium-{index}"}}}
        for index in range(2)
    ]
    with playing(server):
        yield server


@pytest.mark.parametrize(
    ("pools", "namespaces", "quotas", "found"),
    [
        ((), ("research",), (), ["tiny", "young"]),
        ((), ("lab",), (), []),
        (("trillium-1",), (), (), ["tiny"]),
        (("trillium-2",), (), (), []),
        ((), (), (("research", FLAVOR),), ["tiny", "young"]),
        ((), (), (("research", "v5e"), ("product", FLAVOR)), []),
    ],
)
def test_jobs_that_hold_what_is_lost_are_found_and_no_others(
    busy: Played,
    pools: tuple[str, ...],
    namespaces: tuple[str, ...],
    quotas: tuple[tuple[str, str], ...],
    found: list[str],
) -> None:
    assert [job.name for job in running_jobs.running_jobs(client(busy), pools, namespaces, quotas)] == found


def test_a_job_is_named_with_its_pools_or_as_one_that_starts(busy: Played) -> None:
    tiny, young = map(str, running_jobs.running_jobs(client(busy), (), ["research"]))
    assert tiny.startswith("job tiny in namespace research runs on trillium-0, trillium-1; ")
    assert young == "job young in namespace research is starting"

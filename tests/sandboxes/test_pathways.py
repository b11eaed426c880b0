"""Jobs that run by Pathways, before the real API server, JobSet, Kueue and scheduler.

Google's servers do not run here, because they are images: what is seen is that the JobSets are taken, that head and
workers are admitted as one job, and where their pods go.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

import multislice
from infra.stack.names import NODE_POOL_LABEL
from multislice import State
from tests.chain.stack import NAMESPACE, Chain, ignore, wait_until
from tests.infra.recording import Values, stack_values
from tests.infra.stack.settings.test_jobs import CONTAINER
from tests.infra.stack.test_pathways import IMAGES, PATHWAYS, SINGLE_HOST, rendered

pytestmark = pytest.mark.complete


def _stack(shape: Mapping[str, object]) -> Values:
    values = stack_values("local")
    values["slices"]["trillium"] |= shape
    values["cluster"]["system_machine_type"] = "n2-standard-64"
    if shape:
        values["teams"]["research"]["quota"]["trillium"] = 4
    slices = {"group": "trillium", "count": values["slices"]["trillium"]["count"]}
    values["jobs"] = {"serve": CONTAINER | PATHWAYS | {"team": "research", "slices": slices}}
    del values["job"]
    # The job of the first shape still waits for its program when the second one takes its slices away.
    values["allow_interruption"] = True
    return values


SHAPES = {"two slices of two hosts": {}, "one host": SINGLE_HOST}


@pytest.fixture(scope="module", params=SHAPES)
def placed(request: pytest.FixtureRequest, chain: Chain) -> tuple[Chain, Values]:
    """A stack whose only job runs by Pathways, as soon as it is up; its pods get their nodes later."""
    values = _stack(SHAPES[request.param])
    chain.engine_on(values).up(ignore)
    return chain, values


def _pods(chain: Chain) -> list[Any]:
    return [pod for pod in chain.objects("pods") if pod["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name")]


def _pools(chain: Chain, part: str, job: str = "serve") -> set[str | None]:
    """Node pools of the job's pods of that part; None among them: one has no node yet."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][NODE_POOL_LABEL] for node in chain.objects("nodes")}
    pods = [pod for pod in _pods(chain) if pod["metadata"]["name"].startswith(f"{job}-{part}-")]
    return {nodes.get(pod["spec"].get("nodeName")) for pod in pods}


def test_the_api_server_jobset_and_kueue_accept_the_jobset_and_its_pods(placed: tuple[Chain, Values]) -> None:
    chain, values = placed
    manifest: Any = rendered(values)
    manifest["metadata"]["name"] = "again"
    for job in manifest["spec"]["replicatedJobs"]:
        metadata = {"name": f"again-{job['name']}", "namespace": NAMESPACE}
        spec = job["template"]["spec"]
        _dry_run(chain, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    assert _dry_run(chain, manifest)["spec"]["suspend"] is True


def test_kueue_admits_head_and_workers_as_one_job(placed: tuple[Chain, Values]) -> None:
    chain, _ = placed

    def admitted() -> bool:
        return any(
            found["type"] == "Admitted" and found["status"] == "True"
            for workload in chain.objects("workloads")
            for found in workload.get("status", {}).get("conditions", [])
        )

    wait_until(admitted, lambda: chain.kubectl("get", "workloads", "-A", "-o", "yaml"))
    (workload,) = chain.objects("workloads")
    given = {found["name"]: found.get("flavors", {}) for found in workload["status"]["admission"]["podSetAssignments"]}
    assert given["head"] == {}
    assert given["slice"].keys() == {"google.com/tpu"}


def test_the_scheduler_finds_the_head_its_place_and_the_worker_that_shares_it(placed: tuple[Chain, Values]) -> None:
    chain, values = placed
    shared = "machine_type" in values["slices"]["trillium"]
    # On slices of several hosts there is no worker to place: JobSet makes them once the head is ready, which it never
    # is without Google's servers.
    expected = ({"trillium-0"}, {"trillium-0"}) if shared else ({"system"}, set[str]())

    def in_place() -> bool:
        return (_pools(chain, "head"), _pools(chain, "slice")) == expected

    wait_until(in_place, lambda: chain.kubectl("get", "pods", "-A", "-o", "wide"))


def test_a_call_is_admitted_and_its_head_gets_its_place_on_a_system_node(chain: Chain) -> None:
    values = stack_values("local")
    values["cluster"]["system_machine_type"] = "n2-standard-64"
    values["functions"] = {"pathways": IMAGES}
    values["jobs"] = {}
    values["allow_interruption"] = True
    del values["job"]
    chain.engine_on(values).up(ignore)
    on_slices = multislice.run("local", "trillium", count=2, backend="pathways", sandbox=chain.site.root)
    call = on_slices(len).start("abc")

    def in_place() -> bool:
        return (_pools(chain, "head", call.id), _pools(chain, "slice", call.id)) == ({"system"}, set[str]())

    wait_until(in_place, lambda: chain.kubectl("get", "pods", "-A", "-o", "wide"))
    # Admitted. Google's servers do not run here, so the head does not get beyond its start.
    assert call.status().state is State.STARTING
    call.cancel()
    wait_until(lambda: not chain.pods(call.id), lambda: chain.kubectl("get", "pods", "-A"))


def _dry_run(chain: Chain, manifest: Any) -> Any:
    """The object as it would be stored; unknown fields are faults."""
    asked = ("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-")
    return json.loads(chain.kubectl(*asked, stdin=json.dumps(manifest)))

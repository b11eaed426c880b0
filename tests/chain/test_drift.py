"""Drift: what others change without the program is found by name, and `up` repairs that and nothing else.

Nodes, queues and buckets are changed as with the console or kubectl. `test_operate_control` repairs drift under a
running job.
"""

import json
from collections.abc import Mapping

import pytest

from cli.drift import find_drift
from infra.review.preview import Drift, drift_tables
from infra.review.table import as_text
from infra.stack.settings.read import parse
from sandbox.providers.cloud import BUCKET, NODE_POOL, Cloud
from sandbox.providers.gcp import GcpPlugin
from sandbox.providers.plugin import Resource
from tests.chain.shared import JOB, shared
from tests.chain.stack import NAMESPACE, Chain, Operations, ignore
from tests.infra.recording import stack_values


@pytest.mark.costs(cpu_seconds=30)
def test_what_the_cloud_and_controllers_write_is_no_drift(stack: Chain):
    found = _drift(stack)
    assert (found.objects, found.pending, found.errors) == ((), (), ())


@pytest.mark.costs(cpu_seconds=90)
def test_every_change_is_named_with_what_up_would_do_and_up_repairs_it(stack: Chain):
    job, engine = stack.identity(JOB), stack.engine_on(shared())
    state = sorted(engine.resources(), key=lambda resource: resource["urn"])
    idle = _idle_pool(stack)
    _changed_by_others(stack, idle, parse(shared()).checkpoint_bucket)
    found = _drift(stack)
    assert {drifted.name: drifted.repair for drifted in found.objects} == {
        f"slices-{idle}": "update",
        "checkpoints": "update",
        "quota-research": "update",
        "queue-research": "create",
    }
    assert _differences(found) == {
        (f"slices-{idle}", "nodeCount", 2, 0),
        ("checkpoints", 'labels["managed-by"]', "tpu-multislice", "somebody"),
        ("quota-research", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "24", "99"),
    }
    told = as_text(drift_tables(found))
    assert "4 objects are not as declared" in told
    assert "queue-research" in told
    assert sorted(engine.resources(), key=lambda resource: resource["urn"]) == state
    repairs = Operations()
    engine.refresh(ignore)
    engine.up(repairs)
    assert repairs.changes == {(drifted.repair, drifted.name) for drifted in found.objects}
    assert len(stack.objects("nodes", f"cloud.google.com/gke-nodepool={idle}")) == 2
    assert stack.identity(JOB) == job


def _drift(chain: Chain) -> Drift:
    return find_drift("local", chain.engine_on(shared()))


def _differences(found: Drift) -> set[tuple[str, str, object, object]]:
    return {
        (drifted.name, each.path, each.declared, each.found)
        for drifted in found.objects
        for each in drifted.differences
    }


def _idle_pool(chain: Chain) -> str:
    """A slice that the job did not run on: JobSet places by no order."""
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for node in chain.objects("nodes", "cloud.google.com/gke-tpu-topology")
    }
    pods = chain.pods(JOB)
    return min(set(pools.values()) - {pools[pod["spec"]["nodeName"]] for pod in pods})


def _changed_by_others(chain: Chain, idle: str, bucket: str) -> None:
    _at_the_console(chain, NODE_POOL, idle, {"nodeCount": 0})
    _at_the_console(chain, BUCKET, bucket, {"labels": {"managed-by": "somebody"}})
    quota = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = json.dumps([{"op": "replace", "path": quota, "value": "99"}])
    chain.kubectl("patch", "clusterqueue", "research", "--type=json", "-p", patch)
    chain.kubectl("delete", "localqueue", "research", "-n", NAMESPACE)


def _at_the_console(chain: Chain, kind: str, name: str, changed: Mapping[str, object]) -> None:
    """Change a resource of the cloud by its API, with all that API refuses, and past the engine."""
    plugin = GcpPlugin(chain.site)
    plugin.config = dict(stack_values("local")["cloud"])
    ((found, before),) = [record for record in Cloud(chain.site.cloud).every(kind) if record[1]["name"] == name]
    resource = Resource(f"urn:pulumi:console::console::{kind}::{name}", found, before, before)
    plugin.update(resource, {**before, **changed}, 60, preview=False)

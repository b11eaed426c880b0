"""What others change behind the program's back is named, and repaired without touching a running job.

Nodes, queues and buckets are changed as a person at the console or with kubectl would; the job trains all the while.
"""

import json
import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from chaos.field import NAMESPACE
from cli.drift import drifted
from infra.review.drift import Drift, drift_tables
from infra.review.table import as_text
from infra.settings import parse
from sandbox.providers.cloud import Cloud
from sandbox.providers.gcp import GcpPlugin
from sandbox.providers.plugin import Resource
from sandbox.providers.resource_types import BUCKET, NODE_POOL
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import Values, stack_values

JOB = "drifting"


@pytest.fixture(scope="module")
def running(chain: Chain) -> Values:
    """A job that trains on two slices of three until a host is killed."""
    values: Any = stack_values("local")
    values["slices"]["trillium"]["count"] = 3
    values["teams"]["research"]["quota"]["trillium"] = 24
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["job"] |= {"name": JOB, "existing_run": "anew", "max_restarts": 0, "training": training}
    chain.engine_on(values).up(ignore)
    chain.wait_for_step(JOB, 3)
    return values


def test_what_the_cloud_and_controllers_write_is_no_drift_while_the_job_runs(chain: Chain, running: Values):
    found = _drift(chain, running)
    assert (found.objects, found.pending, found.errors) == ((), (), ())


def test_every_change_is_named_with_what_up_would_do_and_up_repairs_it_under_the_running_job(
    chain: Chain, running: Values
):
    job, last = _identity(chain), max(chain.losses(JOB))
    state = sorted(chain.engine_on(running).resources(), key=lambda resource: resource["urn"])
    idle = _idle_pool(chain)
    _changed_by_others(chain, idle, parse(running).checkpoint_bucket)

    found = _drift(chain, running)
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
    assert "LocalQueue queue-research" in told
    assert sorted(chain.engine_on(running).resources(), key=lambda resource: resource["urn"]) == state

    repairs = Operations()
    chain.engine_on(running).refresh(ignore)
    chain.engine_on(running).up(repairs)
    assert repairs.changes == {(drifted.repair, drifted.name) for drifted in found.objects}
    assert len(chain.objects("nodes", f"-l=cloud.google.com/gke-nodepool={idle}")) == 2
    wait_until(lambda: max(chain.losses(JOB)) > last, lambda: f"step {last} was the last")
    assert _identity(chain) == job


def test_what_was_repaired_and_a_job_that_has_ended_are_no_drift(chain: Chain, running: Values):
    os.kill(chain.host_pid(f"{JOB}-slice-1-1"), signal.SIGKILL)
    assert chain.wait_for_end(JOB)["terminalState"] == "Failed"
    found = _drift(chain, running)
    assert (found.objects, found.pending, found.errors) == ((), (), ())


def _drift(chain: Chain, values: Values) -> Drift:
    return drifted("local", chain.engine_on(values))


def _differences(found: Drift) -> set[tuple[str, str, object, object]]:
    return {
        (drifted.name, each.path, each.declared, each.found)
        for drifted in found.objects
        for each in drifted.differences
    }


def _identity(chain: Chain) -> tuple[str, int, set[str]]:
    """The JobSet, how often it was restarted, and its pods."""
    jobset = chain.jobset(JOB)
    pods = chain.objects("pods", f"-l=jobset.sigs.k8s.io/jobset-name={JOB}")
    return jobset["metadata"]["uid"], jobset["status"].get("restarts", 0), {pod["metadata"]["uid"] for pod in pods}


def _idle_pool(chain: Chain) -> str:
    """The one of three slices that the job does not run on: JobSet places by no order."""
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for node in chain.objects("nodes", "-l=cloud.google.com/gke-tpu-topology")
    }
    pods = chain.objects("pods", f"-l=jobset.sigs.k8s.io/jobset-name={JOB}")
    (idle,) = set(pools.values()) - {pools[pod["spec"]["nodeName"]] for pod in pods}
    return idle


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

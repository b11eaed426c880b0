"""Every kind of JobSet that settings lead to, before the real API server with JobSet's and Kueue's webhooks.

Nothing is created: each is a dry run, of the JobSet and of the Job that JobSet would make of it,
since the API server looks at pods only there.
"""

import json
from typing import Any

import pytest

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from sandbox.providers.values import merge
from tests.chain.stack import NAMESPACE, Chain
from tests.infra.one_job import submitted
from tests.infra.recording import stack_values
from tests.infra.stack.settings.test_containers import with_container

_EQUAL_SLICES = {"generation": "v6e", "topology": "2x4", "count": 2, "capacity": "spot"}
_QUEUED = {"capacity": {"kind": "queued", "max_run_hours": 2}}

_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fallback": {
        "slices": {"spare": _EQUAL_SLICES},
        "teams": {"research": {"quota": {"spare": 16}}},
        "job": {"slices": {"fallback": ["spare"]}},
    },
    "flex-start": {"slices": {"trillium": {"capacity": {"kind": "flex-start", "max_run_hours": 2}}}},
    "queued": {"slices": {"trillium": _QUEUED}, "job": {"slices": {"count": 1}}},
    "topology-aware": {"scheduling": {"placement": "topology-aware"}},
    "host-network": {"job": {"host_network": True, "grace_seconds": 300}},
    "mounted-data": {"datasets": {"bucket": "text", "mount": True}},
    "time-limit": {"job": {"max_hours": 0.5}},
    "longest-name": {"job": {"name": "a" * 26}},
}


def _jobset(variant: str) -> Any:
    values = stack_values("local")
    values["job"]["name"] = "variant"
    return render(submitted(merge(values, _VARIANTS[variant])))


def _dry_run(chain: Chain, manifest: Any) -> Any:
    """The object as it would be stored; unknown fields are faults."""
    created = chain.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(manifest))
    return json.loads(created)


@pytest.mark.parametrize("variant", _VARIANTS)
def test_jobset_kueue_and_the_api_server_accept_the_jobset_and_its_pods(stack: Chain, variant: str):
    jobset = _jobset(variant)
    stored = _dry_run(stack, jobset)
    assert stored["spec"]["suspend"] is True
    (slices,) = jobset["spec"]["replicatedJobs"]
    metadata = {"name": "variant", "namespace": NAMESPACE}
    _dry_run(stack, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **slices["template"]})


def test_a_longer_name_than_settings_allow_is_refused_by_jobset(stack: Chain):
    jobset = _jobset("longest-name")
    jobset["metadata"]["name"] += "a"
    with pytest.raises(AssertionError, match="invalid label value"):
        _dry_run(stack, jobset)


@pytest.mark.parametrize("changes", [{"run_as_user": 0}, {"privileged": True}], ids=["root", "privileged"])
def test_the_api_server_accepts_pods_with_rights_where_the_namespace_does(stack: Chain, changes: dict[str, Any]):
    volumes = {
        "cache": {"path": "/opt/cache", "size_gib": 1},
        "ram": {"path": "/ram", "size_gib": 1, "medium": "memory"},
    }
    settings = parse(with_container(stack_values("local"), volumes=volumes, **changes))
    (slices,) = render(submission(settings, settings.jobs["serve"], None))["spec"]["replicatedJobs"]  # pyright: ignore
    template = slices["template"]["spec"]["template"]
    pod = {**template["spec"], "serviceAccountName": "default", "restartPolicy": "Never"}
    _dry_run(
        stack, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}, "spec": pod}
    )

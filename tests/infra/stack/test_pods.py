"""Pod templates and their placement."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from infra.stack.jobset import render
from infra.stack.pods import most_of_host, render_pods, resources
from infra.stack.settings.read import parse
from infra.stack.tpu import SliceShape, all_shapes
from sandbox.providers.node_pools import allocatable
from tests.infra.one_job import submitted, template_of
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.spoiling import errors_of

_SHARE = 0.9
"""Of what GKE leaves to pods; its daemons take the rest."""


def _template(values: Values) -> Any:
    return render_pods(submitted(values)).slices


_MACHINES = {shape.machine_type: shape for shape in all_shapes()}


@pytest.mark.parametrize("shape", _MACHINES.values(), ids=_MACHINES)
def test_the_most_that_a_pod_may_request_fits_and_a_pod_leaves_room_for_daemons_but_for_no_second_pod_of_its_size(
    shape: SliceShape,
) -> None:
    asked: Any = resources(shape)["requests"]
    millicores, memory_mib = allocatable(shape.machine_type)
    assert 0.5 < int(asked["cpu"]) * 1000 / millicores <= _SHARE
    assert 0.5 < int(asked["memory"].removesuffix("Gi")) * 1024 / memory_mib <= _SHARE
    assert asked["google.com/tpu"] == str(shape.chips_per_host)
    vcpus, memory_gib = most_of_host(shape)
    assert vcpus * 1000 < 0.95 * millicores
    assert memory_gib * 1024 < 0.95 * memory_mib


def test_pods_that_save_locally_have_room_for_two_states_in_memory_of_their_own(values: Values) -> None:
    plain = _template(values)["spec"]
    values["job"]["training"] = {"local_save_every_steps": 1}
    pod = _template(values)["spec"]
    (volume,) = [each for each in pod["volumes"] if each not in plain["volumes"]]
    container = pod["containers"][0]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert {"name": volume["name"], "mountPath": "/srv"} in container["volumeMounts"]
    assert {"name": "LOCAL_CHECKPOINTS", "value": "/srv"} in container["env"]
    assert pod["securityContext"] == plain["securityContext"]


def test_two_states_must_fit_the_memory_that_a_pod_requests(values: Values) -> None:
    values["job"] |= {"preset": "llama-3.1-8b", "data": {"source": "token-file", "path": "gs://data/tokens"}}
    values["job"]["data"]["held_out_fraction"] = 0.01
    values["job"]["training"] = {"local_save_every_steps": 1}
    assert errors_of(values) == {}
    two_states = 2 * 12 * 8_030_261_248 / 2**30
    (volume,) = [each for each in _template(values)["spec"]["volumes"] if each["name"] == "local-checkpoints"]
    assert two_states / 2 < int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) < two_states / 2 + 2
    values["slices"]["trillium"]["topology"] = "1x1"
    values["teams"]["research"]["quota"]["trillium"] = 1
    values["job"]["slices"]["count"] = 1
    (error,) = errors_of(values).values()
    assert (
        f"in the {int(0.75 * 176)} GiB that a pod requests of ct6e-standard-1t, got {int(two_states) + 2} GiB" in error
    )


def test_compiled_programs_are_kept_in_the_bucket_only_where_the_stack_file_says_so(values: Values) -> None:
    def cache() -> list[str]:
        variables = _template(values)["spec"]["containers"][0]["env"]
        return [variable["value"] for variable in variables if variable["name"] == "JAX_COMPILATION_CACHE_DIR"]

    assert cache() == []
    values["job"]["compile_cache"] = "bucket"
    assert cache() == [f"gs://{parse(values).checkpoint_bucket}/teams/research/compile-cache"]


def test_jax_may_not_fall_back_to_the_hosts_cpu(values: Values) -> None:
    container = _template(values)["spec"]["containers"][0]
    named = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert named["JAX_PLATFORMS"] == "tpu,cpu"
    environment = {**os.environ, "JAX_PLATFORMS": named["JAX_PLATFORMS"]}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "Unable to initialize backend 'tpu'" in found.stderr


def test_pods_run_as_the_images_user(values: Values) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "workloads" / "Dockerfile").read_text(), re.MULTILINE)
    context = _template(values)["spec"]["securityContext"]
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user


FLEX = {"kind": "flex-start", "max_run_hours": 24}
QUEUED = {"kind": "queued", "max_run_hours": 2}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_POOL = "cloud.google.com/gke-nodepool"


def with_capacities(values: Values, *capacities: object, slices: int = 2) -> Values:
    """A job that falls back from one group of equal slices to the next: first, second and so on."""
    names = ["first", "second", "third"][: len(capacities)]
    of_group = dict(zip(names, capacities, strict=True))
    values["slices"] = {
        name: {**values["slices"]["trillium"], "capacity": capacity} for name, capacity in of_group.items()
    }
    values["teams"]["research"]["quota"] = dict.fromkeys(names, 16)
    values["job"]["slices"] = {"group": names[0], "fallback": names[1:], "count": slices}
    return values


def jobset(values: Values) -> Any:
    return render(submitted(values))


def test_a_job_with_fallback_selects_what_its_groups_share_and_names_them(values: Values) -> None:
    pod = template_of(jobset(with_capacities(values, "on-demand", QUEUED, slices=1)))["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = {"key": "slice-group", "operator": "In", "values": ["first", "second"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    tolerated = [each["key"] for each in pod["tolerations"] if each["effect"] == "NoSchedule"]
    assert tolerated == ["google.com/tpu", "cloud.google.com/gke-queued"]


def test_a_pod_stays_on_a_node_that_is_out_of_touch_however_long(values: Values) -> None:
    pod = template_of(jobset(values))["spec"]
    assert [each for each in pod["tolerations"] if each["effect"] == "NoExecute"] == [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
        for state in ("not-ready", "unreachable")
    ]


@pytest.mark.parametrize(
    ("capacities", "exclusive", "together"),
    [
        (("on-demand", "spot"), True, False),
        (("spot", FLEX), False, True),
        (("on-demand", QUEUED), True, False),
        ((QUEUED, QUEUED), False, False),
    ],
    ids=["standing", "one that waits for pods", "one by request", "by request alone"],
)
def test_the_most_demanding_group_says_what_keeps_a_slice_together(
    values: Values, capacities: tuple[object, ...], exclusive: bool, together: bool
) -> None:
    rendered = jobset(with_capacities(values, *capacities, slices=1))
    assert rendered["metadata"].get("annotations", {}).get(EXCLUSIVE) == (NODE_POOL if exclusive else None)
    assert ("podAffinity" in template_of(rendered)["spec"]["affinity"]) == together


def test_a_job_that_may_be_queued_asks_for_the_shortest_run_that_its_groups_grant(values: Values) -> None:
    longer = {**QUEUED, "max_run_hours": 3}
    rendered = jobset(with_capacities(values, "spot", longer, QUEUED, slices=1))
    assert rendered["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "7200"


def test_topology_awareness_takes_the_place_of_exclusive_topology(values: Values) -> None:
    values["scheduling"] = {"placement": "topology-aware"}
    rendered = jobset(with_capacities(values, "spot", "on-demand"))
    assert "annotations" not in rendered["metadata"]
    assert template_of(rendered)["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL,
        "kueue.x-k8s.io/podset-slice-size": "2",
    }


@pytest.mark.parametrize(
    ("capacities", "replaced"), [(("spot",), False), (("spot", "on-demand"), True), ((QUEUED,), True)]
)
def test_a_priority_changes_in_place_unless_kueue_owns_the_node_selector(
    values: Values, capacities: tuple[object, ...], replaced: bool
) -> None:
    recording = run_program(with_capacities(values, *capacities, slices=1))
    request = recording.named("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny").request
    assert ('metadata.labels["kueue.x-k8s.io/priority-class"]' in request.replaceOnChanges) == replaced


def test_slices_by_request_and_slices_for_waiting_pods_do_not_mix(values: Values) -> None:
    (error,) = errors_of(with_capacities(values, FLEX, QUEUED, slices=1)).values()
    assert "got second (queued) and first (flex-start); remove one" in error


def test_every_group_of_a_fallback_has_the_slices_and_their_shape(values: Values) -> None:
    with_capacities(values, "spot", "spot", "spot")
    values["slices"]["second"] |= {"topology": "4x4"}
    values["slices"]["third"] |= {"count": 1}
    values["teams"]["research"]["quota"] |= {"third": 8}
    errors = str(errors_of(values))
    assert "groups of v6e 2x4 on ct6e-standard-4t, as first, got second of v6e 4x4" in errors
    assert "at most the 1 slices of third" in errors


def test_a_mounted_bucket_and_the_hosts_network_do_not_mix(values: Values) -> None:
    values["datasets"] = {"bucket": "text", "mount": True}
    values["job"]["host_network"] = True
    (error,) = errors_of(values).values()
    assert error.startswith("datasets.mount: expected no mount with job.host_network")

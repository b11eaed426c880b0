"""Pod templates and their placement."""

import re
from typing import Any

import pytest

from infra.stack.pods import most_of_host, render_pods, resources
from infra.stack.tpu import SliceShape, all_shapes
from sandbox.providers.node_pools import allocatable
from tests.infra.one_job import submitted
from tests.infra.recording import ROOT, Values
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


def test_pods_run_as_the_images_user(values: Values) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "workloads" / "Dockerfile").read_text(), re.MULTILINE)
    context = _template(values)["spec"]["securityContext"]
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user


FLEX = {"kind": "flex-start", "max_run_hours": 24}
QUEUED = {"kind": "queued", "max_run_hours": 2}


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

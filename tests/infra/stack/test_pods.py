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

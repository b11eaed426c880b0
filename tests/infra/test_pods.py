"""The pods of a job: what they get of their host, and what their settings change."""

import os
import re
import subprocess
import sys
from typing import Any, get_args

import pytest

from infra.pods import admitted_pods, most_of_host, pod_template, resources
from infra.settings.jobs import PodLevel
from infra.settings.read import parse
from infra.tpu import SliceShape, all_shapes
from sandbox.providers.nodes import allocatable
from tests.infra.one_job import submitted
from tests.infra.recording import ROOT, Values

_SHARE = 0.9
"""Of what GKE leaves to pods; its daemons take the rest."""


def _template(values: Values) -> Any:
    return pod_template(submitted(values))


_MACHINES = {shape.machine_type: shape for shape in all_shapes()}


@pytest.mark.parametrize("shape", _MACHINES.values(), ids=_MACHINES)
def test_a_pod_leaves_room_for_daemons_but_for_no_second_pod_of_its_size(shape: SliceShape) -> None:
    asked: Any = resources(shape)["requests"]
    millicores, memory_mib = allocatable(shape.machine_type)
    assert 0.5 < int(asked["cpu"]) * 1000 / millicores <= _SHARE
    assert 0.5 < int(asked["memory"].removesuffix("Gi")) * 1024 / memory_mib <= _SHARE
    assert asked["google.com/tpu"] == str(shape.chips_per_host)


def test_on_the_network_of_their_host_pods_still_find_each_other_by_name(values: Values) -> None:
    assert not _template(values)["spec"].keys() & {"hostNetwork", "dnsPolicy"}
    values["job"]["host_network"] = True
    pod = _template(values)["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_data_sets_are_a_folder_only_where_the_stack_file_says_so(values: Values) -> None:
    values["datasets"] = {"bucket": "text"}
    assert not any("csi" in volume for volume in _template(values)["spec"]["volumes"])
    values["datasets"] = {"bucket": "text", "mount": True}
    template = _template(values)
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    volume, mount = template["spec"]["volumes"][-1], template["spec"]["containers"][0]["volumeMounts"][-1]
    assert volume["name"] == mount["name"]
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "text"
    assert (mount["mountPath"], mount["readOnly"]) == ("/datasets", True)


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
    told = {**os.environ, "JAX_PLATFORMS": named["JAX_PLATFORMS"]}
    found = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=told, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "Unable to initialize backend 'tpu'" in found.stderr


@pytest.mark.parametrize("level", get_args(PodLevel))
def test_namespaces_warn_of_pods_with_rights_whatever_they_admit(level: PodLevel) -> None:
    told = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("warn", "audit")}
    assert admitted_pods(level) == {"pod-security.kubernetes.io/enforce": level, **told}


@pytest.mark.parametrize("shape", _MACHINES.values(), ids=_MACHINES)
def test_the_most_that_a_pod_may_request_fits_what_gke_leaves_to_pods(shape: SliceShape) -> None:
    millicores, memory_mib = allocatable(shape.machine_type)
    vcpus, memory_gib = most_of_host(shape)
    assert vcpus * 1000 < 0.95 * millicores
    assert memory_gib * 1024 < 0.95 * memory_mib


def test_pods_run_as_the_images_user(values: Values) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "workloads" / "Dockerfile").read_text(), re.MULTILINE)
    context = _template(values)["spec"]["securityContext"]
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user

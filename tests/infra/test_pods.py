"""The pods of a job: what they get of their host, and what their settings change."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.accelerators import SliceShape, all_shapes
from infra.pods import pod_template
from infra.settings import parse
from infra.submission import submission
from sandbox.providers.nodes import allocatable
from tests.infra.recording import Values, stack_values

_SHARE = 0.9
"""Of what GKE leaves to pods; its daemons take the rest."""


def _template(values: Values) -> Any:
    return pod_template(submission(parse(values), "trainer@sha256:0"))


def _asked(shape: SliceShape) -> dict[str, str]:
    values = stack_values("dev")
    values["slices"]["trillium"] = {
        "generation": shape.generation,
        "topology": shape.topology,
        "machine_type": shape.machine_type,
        "count": 1,
        "capacity": "spot",
    }
    values["teams"]["research"]["quota"]["trillium"] = shape.chips
    values["job"] |= {"slices": {"group": "trillium", "count": 1}, "training": {"global_batch": shape.devices * 64}}
    values["job"]["mesh"] = {"replica": shape.devices, "fsdp": 1}
    return _template(values)["spec"]["containers"][0]["resources"]["requests"]


@given(st.sampled_from(all_shapes()))
def test_a_pod_leaves_room_for_daemons_but_for_no_second_pod_of_its_size(shape: SliceShape) -> None:
    asked = _asked(shape)
    millicores, memory_mib = allocatable(shape.machine_type)
    cpu_share = int(asked["cpu"]) * 1000 / millicores
    memory_share = int(asked["memory"].removesuffix("Gi")) * 1024 / memory_mib
    assert 0.5 < cpu_share <= _SHARE
    assert 0.5 < memory_share <= _SHARE
    assert asked["google.com/tpu"] == str(shape.chips_per_host)


def test_on_the_network_of_their_host_pods_still_find_each_other_by_name(values: Values) -> None:
    assert not _template(values)["spec"].keys() & {"hostNetwork", "dnsPolicy"}
    values["job"]["host_network"] = True
    pod = _template(values)["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_data_sets_are_a_folder_only_where_the_stack_file_says_so(values: Values) -> None:
    values["datasets"] = {"bucket": "text"}
    assert len(_template(values)["spec"]["volumes"]) == 1
    values["datasets"] = {"bucket": "text", "mount": True}
    template = _template(values)
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    volume, mount = template["spec"]["volumes"][1], template["spec"]["containers"][0]["volumeMounts"][1]
    assert volume["name"] == mount["name"]
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "text"
    assert (mount["mountPath"], mount["readOnly"]) == ("/datasets", True)

"""RAM disks of nodes, and the jobs that use them."""

from typing import Any

import pytest

from infra.pods import CONFINED_POD, render_pods
from infra.ram_disks import ram_disks
from infra.settings.read import parse
from tests.infra.one_job import submitted
from tests.infra.recording import Values, run_program
from tests.infra.spoiling import errors_of

CLUSTER, BUCKET = "gcp:container/cluster:Cluster", "gcp:storage/bucket:Bucket"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
CONFIGURATION = "kubernetes:checkpointing.gke.io/v1:CheckpointConfiguration"


@pytest.fixture
def saving(values: Values) -> Values:
    """A stack whose job keeps its state in RAM disks."""
    values["cluster"]["ram_disk_gib"] = 48
    values["job"].setdefault("training", {})["local_save_every_steps"] = 1
    return values


def test_a_stack_without_them_declares_nothing_of_them(values: Values) -> None:
    recording = run_program(values)
    (cluster,) = recording.of_type(CLUSTER)
    assert "highScaleCheckpointingConfig" not in cluster.inputs["addonsConfig"]
    assert not recording.of_type(CONFIGURATION)


def test_gke_makes_them_on_the_nodes_of_slices_with_an_empty_bucket(saving: Values) -> None:
    recording = run_program(saving)
    (cluster,) = recording.of_type(CLUSTER)
    addons: Any = cluster.inputs["addonsConfig"]
    assert addons["highScaleCheckpointingConfig"] == addons["gcsFuseCsiDriverConfig"] == {"enabled": True}
    (configuration,) = recording.of_type(CONFIGURATION)
    spec: Any = configuration.inputs["spec"]
    bucket = parse(saving).checkpoint_bucket.replace("checkpoints", "ram-disks")
    assert spec["inMemoryVolumeSize"] == "48Gi"
    assert spec["cloudStorageBucketName"] == bucket
    assert {"key": "google.com/tpu", "operator": "Exists"} in spec["tolerations"]
    assert bucket in [found.inputs["name"] for found in recording.of_type(BUCKET)]
    grants: list[Any] = [found.inputs for found in recording.of_type(GRANT)]
    account = "/subject/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node"
    assert [grant["bucket"] for grant in grants if grant["member"].endswith(account)] == [bucket]


def test_nodes_of_several_groups_are_selected_by_what_they_have_in_common(values: Values) -> None:
    group = parse(values).slices[values["job"]["slices"]["group"]]
    other = group.model_copy(update={"topology": "4x4"})
    one: Any = ram_disks("b", {"a": group}, 1)["spec"]
    both: Any = ram_disks("b", {"a": group, "c": other}, 1)["spec"]
    assert one["nodeSelector"].items() > both["nodeSelector"].items() > set()


def test_only_pods_that_save_locally_see_the_disk_of_their_node(saving: Values) -> None:
    template: Any = render_pods(submitted(saving)).slices
    (volume,) = [each for each in template["spec"]["volumes"] if "csi" in each]
    assert volume["csi"] == {"driver": "multitier-checkpoint.csi.storage.gke.io", "fsType": "tmpfs"}
    container = template["spec"]["containers"][0]
    assert {"name": volume["name"], "mountPath": "/srv"} in container["volumeMounts"]
    assert {"name": "LOCAL_CHECKPOINTS", "value": "/srv/tpu-multislice"} in container["env"]
    assert template["spec"]["securityContext"].items() > CONFINED_POD.items()
    assert template["spec"]["securityContext"]["fsGroup"] == 10001
    del saving["job"]["training"]["local_save_every_steps"]
    plain: Any = render_pods(submitted(saving)).slices
    assert plain["spec"]["securityContext"] == CONFINED_POD
    assert not any("csi" in each for each in plain["spec"]["volumes"])


def test_a_job_that_saves_locally_needs_the_disks_of_its_cluster_and_pods_of_its_own_network(saving: Values) -> None:
    assert errors_of(saving) == {}
    del saving["cluster"]["ram_disk_gib"]
    saving["job"]["host_network"] = True
    text = errors_of(saving)["job.training.local_save_every_steps"]
    assert "nothing without cluster.ram_disk_gib" in text
    assert "nothing with host_network" in text


def test_a_disk_has_room_for_two_states_of_its_host_and_leaves_memory_to_the_trainer(saving: Values) -> None:
    shape = parse(saving).slices[saving["job"]["slices"]["group"]].shape
    saving["job"] |= {"preset": "llama-3.1-8b", "data": {"source": "token-file", "path": "gs://data/tokens"}}
    saving["job"]["data"]["held_out_fraction"] = 0.01
    saving["job"].pop("model", None)
    state = 12 * 8_030_261_248 / shape.hosts / 2**30
    saving["cluster"]["ram_disk_gib"] = int(2 * state)
    text = errors_of(saving)["cluster.ram_disk_gib"]
    assert f"at least {int(2 * state) + 1}" in text
    assert f"{state:.1f} GiB" in text
    saving["cluster"]["ram_disk_gib"] = int(2 * state) + 1
    assert errors_of(saving) == {}
    saving["cluster"]["ram_disk_gib"] = shape.memory_gib_per_host
    assert f"the {shape.memory_gib_per_host} GiB of memory" in errors_of(saving)["cluster.ram_disk_gib"]

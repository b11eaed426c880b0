from pathlib import Path

import pytest

from sandbox.node_agent.environment import SERVICE_ACCOUNT_PATH, container_mounts
from sandbox.node_agent.pod import ConfigError
from tests.sandbox.node_agent.pods import Json, container, pod, surroundings


def lookup(_kind: str, name: str) -> dict[str, bytes] | None:
    return {"spec.json": b"{}", "other": b"1"} if name == "job" else None


def mount(volume: Json, folder: Path, path: str = "/mnt", **fields: object) -> Path:
    me = container(volumeMounts=[{"name": "data", "mountPath": path, **fields}])
    around = surroundings(
        pod(containers=[me], volumes=[{"name": "data", **volume}], metadata={"labels": {"a": "1"}}), lookup
    )
    (made,) = container_mounts(me, around, folder)
    assert made.target == path
    return made.source


def test_two_containers_share_an_empty_dir(tmp_path: Path) -> None:
    (mount({"emptyDir": {"medium": "Memory"}}, tmp_path) / "note").write_text("here")
    assert (mount({"emptyDir": {}}, tmp_path) / "note").read_text() == "here"


def test_a_config_map_becomes_a_file_for_each_key(tmp_path: Path) -> None:
    source = mount({"configMap": {"name": "job"}}, tmp_path)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == lookup("configmaps", "job")


def test_items_choose_and_rename_keys_and_a_sub_path_picks_one_file(tmp_path: Path) -> None:
    volume = {"secret": {"secretName": "job", "items": [{"key": "spec.json", "path": "deep/job.json"}]}}
    assert mount(volume, tmp_path, subPath="deep/job.json").read_bytes() == b"{}"


def test_a_projected_volume_joins_its_sources(tmp_path: Path) -> None:
    labels = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    source = mount({"projected": {"sources": [{"configMap": {"name": "job"}}, {"downwardAPI": labels}]}}, tmp_path)
    assert (source / "labels").read_text() == 'a="1"'
    assert (source / "spec.json").exists()


def test_a_mount_path_that_this_machine_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mountPath '/no/such/path' of volume 'data' does not exist on this machine"):
        mount({"emptyDir": {}}, tmp_path, "/no/such/path")


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "absent"}}, "configmap 'absent' not found"),
        ({"configMap": {"name": "job", "items": [{"key": "no", "path": "p"}]}}, "non-existent config key: no"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, "of kind persistentVolumeClaim is not offered here"),
    ],
)
def test_a_volume_that_cannot_be_made_says_why(volume: Json, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        mount(volume, tmp_path)


def test_a_projected_token_is_asked_for_as_its_source_says(tmp_path: Path) -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    made = mount({"projected": {"sources": [source]}}, tmp_path)
    assert (made / "token").read_text() == "token for 600 s"


def test_a_sub_path_cannot_leave_its_volume(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leaves its volume"):
        mount({"emptyDir": {}}, tmp_path, subPath="../../etc")


@pytest.mark.parametrize("path", [SERVICE_ACCOUNT_PATH, "/tmp"])
def test_the_token_that_admission_mounts_everywhere_and_temporary_files_are_left_out(tmp_path: Path, path: str) -> None:
    me = container(volumeMounts=[{"name": "left-out", "mountPath": path}])
    assert container_mounts(me, surroundings(pod(containers=[me])), tmp_path) == []

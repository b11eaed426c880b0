from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.node_agent.environment import (
    SERVICE_ACCOUNT_PATH,
    ConfigError,
    command_line,
    container_mounts,
    declared_variables,
    expand,
)
from sandbox.node_agent.pod import Pod
from tests.sandbox.node_agent.pods import Json, container, pod, surroundings

NAMES = st.text(alphabet="ABCDEFGHIJ_", min_size=1)
DATA = {"configmaps": {"settings": {"rate": b"3", "LEVEL": b"info"}}, "secrets": {"token": {"key": b"\xff"}}}


def lookup(kind: str, name: str) -> dict[str, bytes] | None:
    return DATA[kind].get(name)


def variables(
    *entries: Json, me: Pod | None = None, given: dict[str, str] | None = None, **fields: Any
) -> dict[str, str]:
    """Return what a container declares with these entries, in a pod that has the variables `given`."""
    return declared_variables(container(env=[*entries], **fields), surroundings(me or pod(), lookup), given or {})


@given(name=NAMES, value=st.text())
def test_a_known_name_is_replaced_once_and_an_unknown_one_stays_as_it_is_written(name: str, value: str) -> None:
    assert expand(f"<$({name})>", {name: value}) == f"<{value}>"
    assert expand(f"$({name})", {}) == f"$({name})"


@given(text=st.text(alphabet="$()A") | st.text())
def test_doubling_every_dollar_protects_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "expanded"}) == text


def test_a_variable_sees_those_before_it_and_wins_over_injected_ones() -> None:
    # Substitutions of a shell are left to it.
    me = container(command=["sh", "-c"], args=["echo $(date) $(WORD)"])
    assert command_line(me, {"WORD": "hi"}) == ["sh", "-c", "echo $(date) hi"]
    entries = [
        {"name": "HOST", "value": "$(POD)-0"},
        {"name": "POD", "value": "mine"},
        {"name": "LATER", "value": "$(POD)"},
    ]
    assert variables(*entries, given={"POD": "theirs"}) == {"POD": "mine", "HOST": "theirs-0", "LATER": "mine"}


def test_references_to_pod_fields_config_maps_and_secrets_are_resolved() -> None:
    me = pod(metadata={"labels": {"role": "worker"}}, serviceAccountName="trainer")
    entries = [
        {"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['role']"}}},
        {"name": "MISSING", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['none']"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
        {"name": "RATE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "rate"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k", "optional": True}}},
    ]
    found = variables(*entries, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}, me=me)
    # A secret that is no text reaches the process unchanged.
    assert found.pop("KEY").encode(errors="surrogateescape") == b"\xff"
    expected = {"ROLE": "worker", "MISSING": "", "ACCOUNT": "trainer", "RATE": "3"}
    assert found == expected | {"ADDRESS": surroundings(me).address}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"configMapKeyRef": {"name": "absent", "key": "k"}}, "configmap 'absent' not found"),
        ({"configMapKeyRef": {"name": "settings", "key": "k"}}, "couldn't find key 'k' in configmap 'settings'"),
    ],
)
def test_a_reference_to_nothing_says_what_is_missing(reference: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        variables({"name": "X", "valueFrom": reference})


def test_variables_from_whole_objects_are_prefixed_and_give_way_to_own_ones() -> None:
    sources = [
        {"prefix": "MY_", "configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "token"}},
        {"secretRef": {"name": "absent", "optional": True}},
    ]
    found = variables({"name": "LEVEL", "value": "$(rate) debug"}, envFrom=sources)
    settings = {"rate": "3", "LEVEL": "3 debug", "MY_rate": "3", "MY_LEVEL": "info"}
    assert found == {**settings, "key": b"\xff".decode(errors="surrogateescape")}
    with pytest.raises(ConfigError, match="secret 'absent' not found"):
        variables(envFrom=[{"secretRef": {"name": "absent"}}])


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "1536"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "100"),
        ({"resource": "requests.cpu", "divisor": "0"}, "0"),
    ],
    ids=["rounded up", "own", "in MiB", "of the node", "nothing"],
)
def test_a_resource_is_given_in_the_unit_asked_for(reference: Json, value: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "1.5Gi"}}
    assert variables({"name": "X", "valueFrom": {"resourceFieldRef": reference}}, resources=resources) == {"X": value}


TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}


def job_data(_kind: str, name: str) -> dict[str, bytes] | None:
    return {"spec.json": b"{}", "other": b"1"} if name == "job" else None


def mount(volume: Json, folder: Path, path: str = "/mnt", **fields: object) -> Path:
    me = container(volumeMounts=[{"name": "data", "mountPath": path, **fields}])
    around = surroundings(pod(containers=[me], volumes=[{"name": "data", **volume}]), job_data)
    (made,) = container_mounts(me, around, folder)
    assert made.target == path
    return made.source


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        (
            {"secret": {"secretName": "job", "items": [{"key": "spec.json", "path": "deep/job.json"}]}},
            {"deep/job.json": "{}"},
        ),
        (
            {"projected": {"sources": [{"configMap": {"name": "job"}}, TOKEN]}},
            {"spec.json": "{}", "other": "1", "token": "token for 600 s"},
        ),
    ],
    ids=["items choose and rename keys", "a projected volume joins its sources"],
)
def test_a_volume_has_these_files(volume: Json, files: dict[str, str], tmp_path: Path) -> None:
    made = mount(volume, tmp_path)
    found = {str(path.relative_to(made)): path.read_text() for path in made.rglob("*") if path.is_file()}
    assert found == files


def test_two_containers_share_an_empty_dir(tmp_path: Path) -> None:
    (mount({"emptyDir": {"medium": "Memory"}}, tmp_path) / "note").write_text("here")
    assert (mount({"emptyDir": {}}, tmp_path) / "note").read_text() == "here"


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "absent"}}, "configmap 'absent' not found"),
        ({"configMap": {"name": "job", "items": [{"key": "no", "path": "p"}]}}, "non-existent config key: no"),
    ],
)
def test_a_volume_that_cannot_be_made_says_why(volume: Json, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        mount(volume, tmp_path)


def test_files_and_parts_cannot_leave_their_volume(tmp_path: Path) -> None:
    items = [{"key": "other", "path": "../../etc/other"}]
    with pytest.raises(ConfigError, match="leaves its volume"):
        mount({"configMap": {"name": "job", "items": items}}, tmp_path)
    with pytest.raises(ConfigError, match="leaves its volume"):
        mount({"emptyDir": {}}, tmp_path, subPath="../other")


def test_a_part_of_a_volume_is_a_file_of_it_or_a_new_folder(tmp_path: Path) -> None:
    assert mount({"configMap": {"name": "job"}}, tmp_path, subPath="other").read_bytes() == b"1"
    part = mount({"emptyDir": {}}, tmp_path / "scratch", subPath="deep/part")
    assert part.is_dir()
    assert part.relative_to(tmp_path / "scratch") == Path("data/deep/part")


def test_files_have_the_modes_of_their_volume_and_items(tmp_path: Path) -> None:
    items = [{"key": "other", "path": "run.sh", "mode": 0o755}, {"key": "spec.json", "path": "spec.json"}]
    made = mount({"configMap": {"name": "job", "items": items, "defaultMode": 0o600}}, tmp_path)
    assert {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()} == {"run.sh": 0o755, "spec.json": 0o600}


def test_a_pod_reads_about_itself_in_files(tmp_path: Path) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    ]
    me = container(
        resources={"limits": {"cpu": "7"}}, volumeMounts=[{"name": name, "mountPath": "/mnt"} for name in ("a", "b")]
    )
    volumes = [
        {"name": "a", "downwardAPI": {"items": items}},
        {"name": "b", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
    ]
    labels = {"role": "worker", "app": 'a "quoted" one'}
    around = surroundings(pod(containers=[me], volumes=volumes, metadata={"labels": labels}))
    for made in container_mounts(me, around, tmp_path):
        assert (made.source / "labels").read_text() == 'app="a \\"quoted\\" one"\nrole="worker"'
        assert (made.source / "cpu").read_text() == "7"


@pytest.mark.parametrize("path", [SERVICE_ACCOUNT_PATH, "/tmp"])
def test_the_token_that_admission_mounts_everywhere_and_temporary_files_are_left_out(tmp_path: Path, path: str) -> None:
    me = container(volumeMounts=[{"name": "left-out", "mountPath": path}])
    assert container_mounts(me, surroundings(pod(containers=[me])), tmp_path) == []

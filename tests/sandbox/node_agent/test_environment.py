import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.node_agent.environment import command_line, declared_variables, expand, field_value, resource_value
from sandbox.node_agent.pod import ConfigError
from tests.sandbox.node_agent.pods import NODE, container, pod, surroundings

NAMES = st.text(alphabet="ABCDEFGHIJ_", min_size=1)
DATA = {"configmaps": {"settings": {"rate": b"3", "LEVEL": b"info"}}, "secrets": {"token": {"key": b"\xff"}}}


def lookup(kind: str, name: str) -> dict[str, bytes] | None:
    return DATA[kind].get(name)


@given(text=st.text(alphabet=st.characters(exclude_characters="$")), variables=st.dictionaries(NAMES, st.text()))
def test_text_without_a_dollar_is_never_changed(text: str, variables: dict[str, str]) -> None:
    assert expand(text, variables) == text


@given(name=NAMES, value=st.text())
def test_a_known_name_is_replaced_once_and_an_escaped_one_is_not(name: str, value: str) -> None:
    assert expand(f"<$({name})>", {name: value}) == f"<{value}>"
    assert expand(f"<$$({name})>", {name: value}) == f"<$({name})>"


@given(name=NAMES)
def test_an_unknown_name_stays_as_it_is_written(name: str) -> None:
    assert expand(f"$({name})", {}) == f"$({name})"


@given(text=st.text(alphabet="$()A"))
def test_doubling_every_dollar_protects_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "expanded"}) == text


def test_a_variable_sees_those_before_it_and_wins_over_injected_ones() -> None:
    entries = [
        {"name": "HOST", "value": "$(POD)-0"},
        {"name": "POD", "value": "mine"},
        {"name": "LATER", "value": "$(POD)"},
    ]
    found = declared_variables(container(env=entries), surroundings(pod()), {"POD": "theirs"})
    assert found == {"POD": "mine", "HOST": "theirs-0", "LATER": "mine"}


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
    sources = [
        {"configMapRef": {"name": "settings"}, "prefix": "MY_"},
        {"secretRef": {"name": "absent", "optional": True}},
    ]
    around = surroundings(me, lookup)
    assert declared_variables(container(env=entries, envFrom=sources), around, {}) == {
        "MY_rate": "3",
        "MY_LEVEL": "info",
        "ROLE": "worker",
        "MISSING": "",
        "ADDRESS": around.address,
        "ACCOUNT": "trainer",
        "RATE": "3",
    }


def test_a_secret_that_is_no_text_reaches_the_process_unchanged() -> None:
    entry = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}
    value = declared_variables(container(env=[entry]), surroundings(pod(), lookup), {})["KEY"]
    assert value.encode(errors="surrogateescape") == b"\xff"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"configMapKeyRef": {"name": "absent", "key": "k"}}, "configmap 'absent' not found"),
        ({"configMapKeyRef": {"name": "settings", "key": "k"}}, "couldn't find key 'k' in configmap 'settings'"),
        (
            {"fieldRef": {"fieldPath": "spec.dnsPolicy"}},
            "'spec.dnsPolicy' is not offered here; choose one of metadata.name",
        ),
        ({"resourceFieldRef": {"resource": "limits.google.com/tpu"}}, "is not offered here; use CPU or memory"),
        ({"fileKeyRef": {}}, "env 'X': fileKeyRef is not offered here"),
    ],
)
def test_a_reference_to_nothing_says_what_is_missing(reference: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        declared_variables(container(env=[{"name": "X", "valueFrom": reference}]), surroundings(pod(), lookup), {})


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "102400"),
        ("requests.cpu", "0", "44"),
    ],
)
def test_resources_are_the_containers_own_or_else_the_nodes_rounded_up(resource: str, divisor: str, value: str) -> None:
    me = container(resources={"limits": {"cpu": "1500m"}})
    assert resource_value({"resource": resource, "divisor": divisor}, me, NODE) == value


def test_labels_as_a_file_have_one_quoted_entry_a_line() -> None:
    me = pod(metadata={"labels": {"b": "2", "a": "1"}})
    assert field_value("metadata.labels", surroundings(me)) == 'a="1"\nb="2"'


def test_a_container_without_command_is_refused_because_images_are_not_run() -> None:
    with pytest.raises(ConfigError, match="'main' has no command; images are not run here"):
        command_line({"name": "main", "args": ["--help"]}, {})


def test_arguments_are_expanded_and_shell_substitutions_are_left_alone() -> None:
    me = container(command=["sh", "-c"], args=["echo $(date) $(WORD)"])
    assert command_line(me, {"WORD": "hi"}) == ["sh", "-c", "echo $(date) hi"]

import asyncio
from typing import Any

import pytest
from pulumi import ResourceOptions

from infra.cluster.kubernetes import Json
from sandbox.providers import charts
from sandbox.providers.kubernetes import ConstructRequest, KubernetesPlugin
from sandbox.providers.plugin import Refusal, Resource
from sandbox.providers.values import merge

SEED = b"\x01\x02\x03\x04"
KUBECONFIG = "apiVersion: v1\nclusters: [{name: c, cluster: {server: 'https://%s'}}]\nusers: []\n"


def urn(api_type: str, name: str = "thing") -> str:
    return f"urn:pulumi:dev::project::kubernetes:{api_type}::{name}"


def checked(api_type: str, inputs: Json) -> Json:
    return KubernetesPlugin().check(urn(api_type), {}, inputs, SEED)


def named(**fields: Any) -> Json:
    return {"metadata": {"name": "n", "namespace": "team"}, **fields}


def test_an_object_without_a_name_is_named_marked_and_keeps_it() -> None:
    plugin = KubernetesPlugin()
    first = plugin.check(urn("core/v1:ConfigMap", "config"), {}, {}, SEED)
    assert first["metadata"]["name"] == "config-01020304"
    assert first["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert plugin.check(urn("core/v1:ConfigMap", "config"), first, {}, b"other") == first


def test_another_cluster_replaces_the_provider_unless_an_identifier_says_it_is_the_same() -> None:
    plugin, old, new = KubernetesPlugin(), {"kubeconfig": KUBECONFIG % "a"}, {"kubeconfig": KUBECONFIG % "b"}
    assert plugin.diff_config(old, new) == ["kubeconfig"]
    assert plugin.diff_config(old, {"kubeconfig": KUBECONFIG % "a" + "preferences: {}\n"}) == []
    same = {"clusterIdentifier": "c"}
    assert plugin.diff_config(old | same, new | same) == []
    assert plugin.diff_config(old | same, old | {"clusterIdentifier": "d"}) == ["clusterIdentifier"]


JOB = {"spec": {"replicatedJobs": [{"name": "slice", "replicas": 2}]}}
SCALED = {"spec": {"replicatedJobs": [{"name": "slice", "replicas": 4}]}}


@pytest.mark.parametrize(
    ("api_type", "fields", "change", "path", "replaced", "same_name"),
    [
        ("core/v1:Service", {}, {"metadata": {"name": "other"}}, "metadata.name", True, False),
        ("core/v1:ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "2"}}, "data.a", True, True),
        ("jobset.x-k8s.io/v1alpha2:JobSet", JOB, SCALED, "spec.replicatedJobs[0].replicas", False, True),
    ],
    ids=["another name", "data of a ConfigMap", "a custom resource"],
)
def test_a_change_replaces_only_what_cannot_be_changed_in_place(
    api_type: str, fields: Json, change: Json, path: str, replaced: bool, same_name: bool
) -> None:
    old = checked(api_type, named(**fields))
    found = KubernetesPlugin().diff(Resource(urn(api_type), "id", old, old), merge(old, change))
    assert [item.path for item in found.changes] == [path]
    assert found.replaces == ({path} if replaced else set())
    assert found.same_name == same_name


@pytest.mark.parametrize(
    ("kind", "field", "option"),
    [("Secret", "stringData", "enableSecretMutable"), ("ConfigMap", "data", "enableConfigMapMutable")],
)
def test_data_changes_in_place_only_with_the_option_of_the_provider(kind: str, field: str, option: str) -> None:
    def replaces(config: Json) -> frozenset[str]:
        plugin = KubernetesPlugin()
        plugin.config = config
        old, new = (plugin.check(urn(f"core/v1:{kind}"), {}, named(**{field: {"a": text}}), SEED) for text in "12")
        return plugin.diff(Resource(urn(f"core/v1:{kind}"), "team/n", old, old), new).replaces

    assert replaces({}) == {"data.a"}
    assert replaces({option: "true"}) == frozenset()


type Alone = tuple[KubernetesPlugin, Resource, list[str]]


@pytest.fixture
def alone() -> Alone:
    """A plugin whose cluster does not answer, an object it made earlier, and the warnings it gives."""
    plugin, warnings = KubernetesPlugin(), list[str]()
    contexts = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    known_user = KUBECONFIG.replace("users: []", "users: [{name: u, user: {}}]")
    plugin.config = {"kubeconfig": f"{known_user % '127.64.0.1:1'}{contexts}"}
    plugin.warn = lambda urn, message: warnings.append(message)
    inputs = checked("core/v1:ConfigMap", named())
    return plugin, Resource(urn("core/v1:ConfigMap"), "team/n", inputs, inputs), warnings


def test_without_its_cluster_an_object_stays_and_the_error_names_the_way_out(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_K8S_DELETE_UNREACHABLE", raising=False)
    plugin, known, _ = alone
    way_out = r'rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment variable set to "true"$'
    with pytest.raises(Refusal, match=rf"^failed to read resource state due to unreachable cluster\. .*{way_out}"):
        plugin.read(known)
    with pytest.raises(Refusal, match=rf"^configured Kubernetes cluster is unreachable\. .*{way_out}"):
        plugin.delete(known, 0)
    with pytest.raises(
        Refusal, match=r"^configured Kubernetes cluster is unreachable: unable to load schema .*: no answer at "
    ):
        plugin.create(known.urn, known.inputs, 0, preview=False)


@pytest.mark.parametrize("option", [{"deleteUnreachable": "true"}, {"deleteUnreachable": True}, {}])
def test_without_its_cluster_an_object_leaves_the_state_on_request(
    alone: Alone, option: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, known, warnings = alone
    plugin.config |= option
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "false" if option else "true")
    assert plugin.read(known) is None
    plugin.delete(known, 0)
    assert sum("unreachable: unable to load schema" in warning for warning in warnings) == 2


def test_without_its_cluster_a_preview_goes_on_but_for_charts(alone: Alone) -> None:
    plugin, known, _ = alone
    assert plugin.create(known.urn, known.inputs, 0, preview=True)[1]["metadata"]["name"] == "n"
    assert plugin.update(known, merge(known.inputs, {"data": {"a": "1"}}), 0, preview=True)["data"] == {"a": "1"}
    request = ConstructRequest(charts.CHART, "kueue", {}, ResourceOptions())
    with pytest.raises(Refusal, match="^configured Kubernetes cluster is unreachable: unable to load schema infor"):
        asyncio.run(plugin.construct(request))

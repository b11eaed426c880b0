"""The stand-in for the Kubernetes provider on a real API server: what it makes, changes and refuses, as the published
one does, and to whom the fields of an object belong afterwards."""

from collections.abc import Generator
from dataclasses import dataclass, replace

import pytest

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from sandbox import certificates
from sandbox.providers.kubernetes import KubernetesPlugin
from sandbox.providers.plugin import NotReady, Refusal, Resource
from sandbox.providers.values import merge
from tests.chain.stack import Chain

MAPS = "/api/v1/namespaces/default/configmaps"
MAP_URN = "urn:pulumi:test::project::kubernetes:core/v1:ConfigMap::thing"
KIND_URN = "urn:pulumi:test::project::kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition::thing"
OWN = "pulumi-kubernetes-"


@dataclass
class Thing:
    """An object of the engine's, as its state remembers it."""

    plugin: KubernetesPlugin
    resource: Resource

    @classmethod
    def made(cls, plugin: KubernetesPlugin, urn: str, inputs: Json) -> "Thing":
        checked = plugin.check(urn, {}, inputs, b"seed")
        resource_id, state = plugin.create(urn, checked, 0, preview=False)
        return cls(plugin, Resource(urn, resource_id, checked, state))

    def previewed(self, inputs: Json) -> Json:
        return self.plugin.update(self.resource, self._checked(inputs), 0, preview=True)

    def update(self, inputs: Json) -> None:
        checked = self._checked(inputs)
        state = self.plugin.update(self.resource, checked, 0, preview=False)
        self.resource = replace(self.resource, inputs=checked, state=state)

    def _checked(self, inputs: Json) -> Json:
        return self.plugin.check(self.resource.urn, self.resource.inputs, inputs, b"seed")


def holding(**data: str) -> Json:
    return {"metadata": {"name": "thing", "namespace": "default"}, "data": data}


def by_force(**data: str) -> Json:
    return merge(holding(**data), {"metadata": {"annotations": {"pulumi.com/patchForce": "true"}}})


def managers(live: Json) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["operation"]) for entry in live["metadata"]["managedFields"]]


@pytest.fixture
def api(chain: Chain) -> Generator[ApiServer]:
    yield chain.api
    chain.api.delete(f"{MAPS}/thing", {})


@pytest.fixture
def plugin(chain: Chain) -> KubernetesPlugin:
    plugin = KubernetesPlugin()
    plugin.config = {"kubeconfig": str(chain.site.kubeconfig)}
    return plugin


@pytest.fixture
def thing(api: ApiServer, plugin: KubernetesPlugin) -> Thing:
    del api
    return Thing.made(plugin, MAP_URN, holding(a="1", b="1"))


def test_an_object_that_is_there_already_is_not_taken_over(api: ApiServer, thing: Thing) -> None:
    assert managers(api.request("GET", f"{MAPS}/thing")) == [("pulumi-kubernetes", "Update")]
    again = thing.plugin.check(MAP_URN, {}, holding(a="2"), b"seed")
    thing.plugin.create(MAP_URN, again, 0, preview=True)
    with pytest.raises(ApiError, match='configmaps "thing" already exists'):
        thing.plugin.create(MAP_URN, again, 0, preview=False)
    assert api.request("GET", f"{MAPS}/thing")["data"] == {"a": "1", "b": "1"}


def test_an_updated_object_has_one_manager_of_its_own_from_then_on(api: ApiServer, thing: Thing) -> None:
    for data in ({"a": "2"}, {"c": "3"}):
        thing.update(holding(**data))
        live = api.request("GET", f"{MAPS}/thing")
        assert live["data"] == data
        assert managers(live) == [(thing.resource.state["__fieldManager"], "Apply")]


def test_what_kubectl_has_edited_is_as_declared_after_the_next_update(chain: Chain, thing: Thing) -> None:
    for data in ({"a": "2"}, {"a": "3"}):
        chain.kubectl("patch", "configmap", "thing", "-n", "default", "-p", '{"data": {"a": "edited", "x": "added"}}')
        thing.update(holding(**data))
        live = chain.api.request("GET", f"{MAPS}/thing")
        assert live["data"] == data
        assert managers(live) == [(thing.resource.state["__fieldManager"], "Apply")]


def test_an_edit_by_another_program_is_a_conflict_unless_the_object_is_taken_by_force(
    api: ApiServer, thing: Thing
) -> None:
    api.patch(f"{MAPS}/thing", {"data": {"a": "edited"}})
    # A preview forces, as long as the creator's entry is there; a refused update adopts that one.
    assert thing.previewed(holding(a="2"))["data"] == {"a": "2", "b": "1"}
    for refused in (thing.update, thing.update, thing.previewed):
        with pytest.raises(NotReady, match=rf'field manager "{OWN}.*\n?.*conflict with "python-urllib3"') as told:
            refused(holding(a="2"))
        assert told.value.state["data"]["a"] == "edited"
    thing.update(by_force(a="2"))
    assert api.request("GET", f"{MAPS}/thing")["data"] == {"a": "2"}


def test_an_object_that_is_gone_is_not_made_again_by_an_update_nor_is_one_announced(
    api: ApiServer, thing: Thing
) -> None:
    api.delete(f"{MAPS}/thing", {})
    for refused in (thing.previewed, thing.update):
        with pytest.raises(Refusal, match=r'failed: configmaps "thing" not found\nunable to get cluster state: '):
            refused(holding(a="2"))
    assert api.find(f"{MAPS}/thing") is None


def test_previews_need_no_right_to_write(chain: Chain, thing: Thing) -> None:
    chain.kubectl("create", "serviceaccount", "viewer", "-n", "default")
    chain.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer")
    token = chain.kubectl("create", "token", "viewer", "-n", "default").strip()
    authority = (chain.site.pki / "ca.crt").read_bytes()
    viewer = KubernetesPlugin()
    viewer.config = {"kubeconfig": certificates.kubeconfig(chain.site.api_server_url, authority, {"token": token})}
    seen = Thing(viewer, thing.resource)
    assert seen.previewed(holding(a="2"))["data"]["a"] == "2"
    other = viewer.check(MAP_URN, {}, merge(holding(), {"metadata": {"name": "other"}}), b"seed")
    viewer.create(MAP_URN, other, 0, preview=True)
    for refused in (lambda: viewer.create(MAP_URN, other, 0, preview=False), lambda: seen.update(holding(a="2"))):
        with pytest.raises((ApiError, Refusal), match="forbidden"):
            refused()


def test_a_kind_is_replaced_as_a_whole(api: ApiServer, plugin: KubernetesPlugin) -> None:
    def kind(**names: object) -> Json:
        schema = {"openAPIV3Schema": {"type": "object"}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": "things", "kind": "Thing", **names}
        spec = {"group": "example.org", "scope": "Cluster", "names": names, "versions": [version]}
        return {"metadata": {"name": "things.example.org"}, "spec": spec}

    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org"
    made = Thing.made(plugin, KIND_URN, kind(shortNames=["th"]))
    try:
        api.patch(path, {"metadata": {"labels": {"added": "true"}}})
        made.update(kind(categories=["all"]))
        live = api.request("GET", path)
    finally:
        api.delete(path, {})
    assert live["spec"]["names"].keys() == {"plural", "kind", "singular", "listKind", "categories"}
    assert "labels" not in live["metadata"]
    assert (made.resource.state["__fieldManager"], "Update") in managers(live)

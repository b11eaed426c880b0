from sandbox.providers import manifests
from sandbox.providers.plugin import Resource
from sandbox.providers.values import UNKNOWN, Object, Secret

SECRET: Object = {"kind": "Secret", "metadata": {"name": "n"}}
LIVE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "n", "namespace": "team", "uid": "1", "resourceVersion": "7", "managedFields": []},
    "data": {"a": "1"},
    "status": {},
}


def test_the_content_of_a_secret_is_concealed_as_the_api_keeps_it() -> None:
    found = manifests.with_secrets({**SECRET, "data": {"a": "eA=="}, "stringData": {"b": "y", "c": UNKNOWN}})
    assert found == {**SECRET, "data": Secret({"a": "eA==", "b": "eQ==", "c": UNKNOWN})}
    assert manifests.with_secrets(SECRET) == SECRET


def test_what_cannot_change_in_place_is_known_of_built_in_kinds_alone() -> None:
    identity = ("kind", "metadata.name", "metadata.namespace")
    assert manifests.fixed_paths("JobSet", {}) == identity
    assert manifests.fixed_paths("Deployment", {}) == (*identity, "spec.selector")
    assert manifests.fixed_paths("Secret", {"enableSecretMutable": True}) == (*identity, "type")


def test_an_object_that_is_imported_is_what_id_and_type_say() -> None:
    urn = "urn:pulumi:dev::project::kubernetes:core/v1:ConfigMap::thing"
    assert manifests.of(Resource(urn, "team/n", {}, {})) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "team"},
    }


def test_the_engine_keeps_an_object_without_its_bookkeeping() -> None:
    assert "managedFields" not in manifests.state(LIVE, {})["metadata"]
    assert manifests.state(LIVE, {})["data"] == {"a": "1"}
    definition = {**LIVE, "kind": "CustomResourceDefinition", "spec": {"group": "kueue.x-k8s.io"}}
    assert "spec" not in manifests.state(definition, {})


def test_an_object_is_as_a_program_would_have_written_it() -> None:
    assert manifests.as_written(LIVE) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "team"},
        "data": {"a": "1"},
    }


def test_what_holds_an_object_is_named_until_another_one_has_its_name() -> None:
    held: Object = {**LIVE, "metadata": {**LIVE["metadata"], "finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    assert manifests.still_there(held, LIVE) == "ConfigMap n is held by finalizers kueue.x-k8s.io/resource-in-use"
    assert manifests.still_there(LIVE, LIVE) == "ConfigMap n is still being deleted"
    assert manifests.still_there({**LIVE, "metadata": {**LIVE["metadata"], "uid": "2"}}, LIVE) == ""
    assert manifests.still_there(None, LIVE) == ""

from typing import Any

import pytest

from infra.cluster.kubernetes import Json
from sandbox.providers import manifests
from sandbox.providers.manifests import (
    poll,
    requirement,
)
from sandbox.providers.plugin import Refusal, Resource
from sandbox.providers.values import UNKNOWN, Secret

SECRET: Json = {"kind": "Secret", "metadata": {"name": "n"}}
LIVE: Json = {
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


def test_an_object_that_is_imported_is_what_id_and_type_say() -> None:
    urn = "urn:pulumi:dev::project::kubernetes:core/v1:ConfigMap::thing"
    assert manifests.of(Resource(urn, "team/n", {}, {})) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "team"},
    }


def test_an_object_is_kept_without_its_bookkeeping_and_read_as_a_program_would_have_written_it() -> None:
    assert "managedFields" not in manifests.state(LIVE, {})["metadata"]
    assert manifests.state(LIVE, {})["data"] == {"a": "1"}
    written = {key: value for key, value in LIVE.items() if key != "status"}
    assert manifests.as_written(LIVE) == written | {"metadata": {"name": "n", "namespace": "team"}}
    definition = {**LIVE, "kind": "CustomResourceDefinition", "spec": {"group": "kueue.x-k8s.io"}}
    assert "spec" not in manifests.state(definition, {})


def test_what_holds_an_object_is_named_until_another_one_has_its_name() -> None:
    held: Json = {**LIVE, "metadata": {**LIVE["metadata"], "finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    assert manifests.still_there(held, LIVE) == "ConfigMap n is held by finalizers kueue.x-k8s.io/resource-in-use"
    assert manifests.still_there(LIVE, LIVE) == "ConfigMap n is still being deleted"
    assert manifests.still_there({**LIVE, "metadata": {**LIVE["metadata"], "uid": "2"}}, LIVE) == ""
    assert manifests.still_there(None, LIVE) == ""


def manifest(kind: str, **annotations: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"annotations": {f"pulumi.com/{key}": text for key, text in annotations.items()}}}


def unmet(inputs: dict[str, Any], live: dict[str, Any]) -> str:
    check = requirement(inputs)
    assert check is not None
    return check({"metadata": {"generation": 1}, **live})


ACTIVE, INACTIVE = (
    {"status": {"conditions": [{"type": "Active", "status": status, "message": "no flavor"}]}}
    for status in ("True", "False")
)
BUNDLE = "jsonpath={.webhooks[*].clientConfig.caBundle}"
OLD = {"metadata": {"generation": 2}, "status": {"observedGeneration": 1, **ACTIVE["status"]}}


@pytest.mark.parametrize(
    ("expression", "live", "lack"),
    [
        ("condition=Active", ACTIVE, ""),
        ("condition=Active", INACTIVE, "Active is False: no flavor"),
        ("condition=Active=False", INACTIVE, ""),
        ("condition=Active", {}, "no condition Active yet"),
        ("condition=Active", OLD, "its controller has not seen the newest generation"),
        (BUNDLE, {"webhooks": [{"clientConfig": {}}]}, "{.webhooks[*].clientConfig.caBundle} has no value"),
        (BUNDLE, {"webhooks": [{"clientConfig": {"caBundle": "AA=="}}]}, ""),
    ],
)
def test_an_object_is_awaited_as_its_annotation_says(expression: str, live: Json, lack: str) -> None:
    assert requirement(manifest("JobSet")) is None
    assert unmet(manifest("X", waitFor=expression), live) == lack


def test_a_deployment_is_awaited_until_its_replicas_are_available() -> None:
    inputs, spec = manifest("Deployment"), {"replicas": 2}
    assert unmet(inputs, {"spec": spec}) == "its controller has not seen it"
    status = {"observedGeneration": 1, "availableReplicas": 1}
    assert unmet(inputs, {"spec": spec, "status": status}) == "1 of 2 replicas are available"
    assert unmet(inputs, {"spec": spec, "status": status | {"availableReplicas": 2}}) == ""


@pytest.mark.parametrize("expression", ["ready", "jsonpath={.a['b.c']}"])
def test_another_expression_is_refused_with_those_there_are(expression: str) -> None:
    with pytest.raises(Refusal, match="expected `condition="):
        requirement(manifest("X", waitFor=expression))


def test_waiting_ends_with_what_is_lacking() -> None:
    with pytest.raises(Refusal, match=r"timed out after 0\.1 s: not yet"):
        poll(lambda: "not yet", 0.1)

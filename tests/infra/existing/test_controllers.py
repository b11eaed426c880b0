"""JobSet and Kueue of others: versions, API versions and configuration."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from infra.cluster.kubernetes import Json
from infra.existing.checks import (
    Needs,
    configuration_doubts,
    configuration_errors,
    controller,
    controller_errors,
    counted,
)
from infra.stack.manifests import configuration
from infra.stack.settings.errors import FieldError

SERVED = ["jobset.x-k8s.io/v1alpha2", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"]


def deployment(image: str, namespace: str = "kueue-system", version: str = "") -> Json:
    labels = {"app.kubernetes.io/version": version} if version else {}
    pod = {"containers": [{"image": "sidecar"}, {"image": image}], "volumes": [{"configMap": {"name": "settings"}}]}
    return {"metadata": {"namespace": namespace, "labels": labels}, "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("image", "label", "version"),
    [
        ("registry.k8s.io/kueue/kueue:v0.19.2@sha256:1", "", "0.19.2"),
        ("mirror.example.com:5000/kueue@sha256:1", "v0.18.1", "0.18.1"),
        ("mirror.example.com/kueue-controller:latest", "", ""),
    ],
)
def test_a_controller_is_found_by_its_image_and_its_version_by_tag_or_label(
    image: str, label: str, version: str
) -> None:
    others = [deployment("registry.k8s.io/jobset/jobset:v0.12.0"), deployment("kueue-exporter:v1.2.3")]
    found = controller("kueue", [*others, deployment(image, "queues", label)])
    assert found is not None
    assert (found.version, found.config_map) == (version, "/api/v1/namespaces/queues/configmaps/settings")
    assert controller("kueue", others) is None


def errors(how: Any, found: Json | None, served: list[str] = SERVED) -> list[FieldError]:
    kueue = controller("kueue", [found] if found else [])
    return list(controller_errors("kueue", how, kueue, served))


def test_a_controller_is_taken_as_found_or_installed_as_the_stack_file_says() -> None:
    here = deployment("kueue:v0.19.2")
    assert not errors("found", here)
    assert not errors("install", None)
    (missing,) = errors("found", None)
    assert "write cluster.existing.kueue: install" in missing.fix
    (elsewhere,) = errors("install", deployment("kueue:v0.19.2", "queues"))
    assert elsewhere.fix == "write cluster.existing.kueue: found"


def test_an_old_controller_or_one_without_the_api_version_is_refused() -> None:
    (old,) = errors("found", deployment("kueue:v0.16.4"))
    assert (old.expected, old.got) == ("Kueue 0.18 or newer", "0.16.4")
    (other,) = errors("found", deployment("kueue:latest"), SERVED[:2])
    assert other.expected == "Kueue that serves kueue.x-k8s.io/v1beta2"


def test_the_configuration_is_read_from_the_config_map_and_without_one_has_the_defaults(needs: Needs) -> None:
    text = yaml.safe_dump({"resources": {"excludeResourcePrefixes": ["cpu", "mem"]}})
    config = configuration({"data": {"controller_manager_config.yaml": text}})
    assert counted(config) == ()
    assert counted(configuration(None)) == ("cpu", "memory")
    assert not list(configuration_errors({}, needs, SERVED))


def test_what_a_kueue_of_others_lacks_is_refused_because_the_stack_does_not_change_it(needs: Needs) -> None:
    config = {
        "integrations": {"frameworks": ["batch/job"]},
        "managedJobsNamespaceSelector": {"matchLabels": {"kueue": "yes"}},
        "fairSharing": {},
        "featureGates": {"TopologyAwareScheduling": False},
    }
    asking = replace(needs, placement="topology-aware", queued=True)
    found = [error.path for error in configuration_errors(config, asking, SERVED)]
    kueue = "cluster.existing.kueue"
    assert found == [kueue, kueue, "scheduling.fair_sharing", "scheduling.placement", kueue]


def test_a_kueue_that_does_not_wait_for_pods_is_a_doubt() -> None:
    assert list(configuration_doubts({}, "0.18.1"))
    assert not list(configuration_doubts({}, "0.19.2"))
    assert not list(configuration_doubts({"waitForPodsReady": {"timeout": "5m"}}, "0.18.1"))
    assert list(configuration_doubts({"waitForPodsReady": {"enable": False}}, "0.18.1"))

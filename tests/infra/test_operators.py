"""The configuration of Kueue and JobSet."""

import subprocess
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.operators import JOBSET, KUEUE, Release
from sandbox import builds
from tests.chain.stack import ignore
from tests.infra.chart_registry import Registry, serving
from tests.infra.recording import Values, run_program, scale_values

FLEX = {"kind": "flex-start", "max_run_hours": 4}
QUEUED = {"kind": "queued", "max_run_hours": 4}


def _configuration(values: Values) -> Any:
    chart: Any = run_program(values).named("kubernetes:helm.sh/v4:Chart", "kueue").inputs["values"]
    return yaml.safe_load(chart["managerConfig"]["controllerManagerConfigYaml"])


def test_no_job_in_a_teams_namespace_gets_past_the_queue(values: Values) -> None:
    recording = run_program(values)
    configuration = _configuration(values)
    labels: Any = recording.named("kubernetes:core/v1:Namespace", "namespace-research").inputs["metadata"]["labels"]
    assert configuration["manageJobsWithoutQueueName"]
    assert configuration["managedJobsNamespaceSelector"]["matchLabels"].items() <= labels.items()


def test_for_queued_nodes_kueue_waits_no_longer_than_for_those_that_stay(values: Values) -> None:
    """Pods on flex-start capacity ask for nodes themselves: `staging.yaml` has how long Kueue waits for them."""
    values["slices"]["trillium"]["capacity"] = QUEUED
    values["job"]["slices"]["count"] = 1
    patience = _configuration(values)["waitForPodsReady"]
    assert (patience["timeout"], patience["recoveryTimeout"]) == ("30m", "1h")


def test_a_stated_patience_wins_over_that_of_the_capacity(values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = FLEX
    values["scheduling"] = {"ready_minutes": 7, "recovery_minutes": 9, "requeueing": {"limit": 0, "base_seconds": 5}}
    assert _configuration(values)["waitForPodsReady"] == {
        "timeout": "7m",
        "recoveryTimeout": "9m",
        "requeuingStrategy": {
            "timestamp": "Eviction",
            "backoffLimitCount": 0,
            "backoffBaseSeconds": 5,
            "backoffMaxSeconds": 3600,
        },
    }


def _resources(values: Values) -> list[Any]:
    recording = run_program(values)
    kueue, jobset = (
        recording.named("kubernetes:helm.sh/v4:Chart", name).inputs["values"] for name in ("kueue", "jobset")
    )
    return [kueue["controllerManager"]["manager"]["resources"], jobset["controller"]["resources"]]


def test_both_controllers_have_memory_for_all_nodes_and_pods_of_the_largest_stack() -> None:
    hosts, measured_mib_per_host = 4096, 0.16
    for resources in _resources(scale_values()):
        assert resources["requests"]["memory"] == resources["limits"]["memory"] == f"{512 + hosts}Mi"
        assert resources["requests"]["cpu"] == "2500m"
        assert int(resources["limits"]["memory"].removesuffix("Mi")) > 4 * measured_mib_per_host * hosts


def test_a_slice_more_starts_no_controller_again(values: Values) -> None:
    before = _resources(values)
    values["slices"]["trillium"]["count"] += 1
    assert _resources(values) == before
    assert {resources["limits"]["memory"] for resources in before} == {"4096Mi"}


def test_both_controllers_run_the_images_of_their_digests(values: Values) -> None:
    recording = run_program(values)
    jobset: Any = recording.named("kubernetes:helm.sh/v4:Chart", "jobset").inputs["values"]
    kueue: Any = recording.named("kubernetes:helm.sh/v4:Chart", "kueue").inputs["values"]
    images = [jobset["image"], kueue["controllerManager"]["manager"]["image"]]
    for image, release in zip(images, (JOBSET, KUEUE), strict=True):
        assert image["repository"] == f"registry.k8s.io/{release.name}/{release.name}"
        assert image["tag"] == f"v{release.version}@{release.image_digest}"


@pytest.fixture
def registry() -> Generator[Registry]:
    with serving() as registry:
        yield registry


def _rendered(release: Release, registry: Registry, folder: Path) -> subprocess.CompletedProcess[str]:
    """What Helm makes of a release's address, in a registry on loopback."""
    address = release.chart.replace("registry.k8s.io", f"127.0.0.1:{registry.port}")
    helm = [str(builds.prepare(ignore).path("helm")), "template", address, "--version", release.version]
    environment = {name: str(folder) for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    return subprocess.run([*helm, "--plain-http"], env=environment, capture_output=True, text=True, check=False)


def test_a_chart_is_that_of_its_digest(registry: Registry, tmp_path: Path) -> None:
    release = replace(KUEUE, chart_digest=registry.publish("kueue", KUEUE.version, "good"))
    assert "image: good" in _rendered(release, registry, tmp_path).stdout


def test_a_version_that_was_published_again_is_refused(registry: Registry, tmp_path: Path) -> None:
    release = replace(KUEUE, chart_digest=registry.publish("kueue", KUEUE.version, "good"))
    registry.publish("kueue", KUEUE.version, "evil")
    refused = _rendered(release, registry, tmp_path)
    assert refused.returncode != 0
    assert "digest mismatch" in refused.stderr


def test_another_chart_under_the_digest_is_refused(registry: Registry, tmp_path: Path) -> None:
    good, evil = (registry.publish("kueue", KUEUE.version, image) for image in ("good", "evil"))
    at = "kueue/charts/kueue/manifests/{}".format
    registry.content[at(good)] = registry.content[at(evil)]
    refused = _rendered(replace(KUEUE, chart_digest=good), registry, tmp_path)
    assert refused.returncode != 0
    assert "evil" not in refused.stdout

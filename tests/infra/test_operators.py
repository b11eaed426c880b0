"""The configuration of Kueue and JobSet."""

import subprocess
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stack.controllers import KUEUE, Release
from sandbox import builds
from tests.chain.stack import ignore
from tests.infra.chart_registry import Registry, serving
from tests.infra.recording import Values, run_program

FLEX = {"kind": "flex-start", "max_run_hours": 4}
QUEUED = {"kind": "queued", "max_run_hours": 4}


def _configuration(values: Values) -> Any:
    chart: Any = run_program(values).named("kubernetes:helm.sh/v4:Chart", "kueue").inputs["values"]
    return yaml.safe_load(chart["managerConfig"]["controllerManagerConfigYaml"])


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


def test_a_slice_more_starts_no_controller_again(values: Values) -> None:
    before = _resources(values)
    values["slices"]["trillium"]["count"] += 1
    assert _resources(values) == before
    assert {resources["limits"]["memory"] for resources in before} == {"4096Mi"}


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

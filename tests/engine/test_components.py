"""The three components in programs of other people: the example, and each component without the other two."""

import runpy
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pytest
from pulumi import ResourceOptions, automation

from infra.fleet import Fleet, FleetArgs
from infra.foundation import Foundation, FoundationArgs
from infra.gke_cluster import ClusterOutputs
from infra.job import Job, JobArgs
from infra.objects import kubernetes_provider
from infra.stack.settings.read import parse
from infra.stack.settings.stack import FleetSpec
from sandbox import builds
from sandbox.daemon import CHECKOUT
from sandbox.engine import environment, stack_in
from sandbox.providers.charts import local_charts
from sandbox.providers.installation import install, published_plugin
from sandbox.site import create
from tests.chain.stack import Chain, ignore, sandbox_in, wait_until
from tests.infra.one_job import IMAGE
from tests.infra.recording import stack_values

SETTINGS = parse(stack_values("local"))
CLOUD = SETTINGS.cloud
BUCKET = "others-checkpoints"
SPEC = FleetSpec(cloud=CLOUD, slices=SETTINGS.slices, teams=SETTINGS.teams, bucket=BUCKET)
EXAMPLE = CHECKOUT / "examples" / "components" / "__main__.py"


def _example() -> None:
    runpy.run_path(str(EXAMPLE))


def _planned(folder: Path, program: Callable[[], None]) -> list[str]:
    """The names of what a preview without a cluster would create."""
    site, found = create(folder / "sandbox"), builds.prepare(ignore)
    install(site)
    stack = stack_in(site, found, "test", program)
    stack.set_all_config({"project": automation.ConfigValue("mine"), "image": automation.ConfigValue(IMAGE)})
    events: list[automation.EngineEvent] = []
    planned = stack.preview(on_event=events.append)
    assert set(planned.change_summary) == {"create"}
    return [event.resource_pre_event.metadata.urn.rpartition("::")[2] for event in events if event.resource_pre_event]


@pytest.mark.costs(cpu_seconds=15)
def test_the_example_declares_a_cluster_its_slices_and_a_job(tmp_path: Path) -> None:
    names = {"east-cluster", "tpus-slices-trillium-1", "tpus-kueue", "tpus-queue-research", "job-tiny"}
    assert names <= set(_planned(tmp_path, _example))


@pytest.mark.complete
def test_a_program_may_have_several_components_of_each_kind(tmp_path: Path) -> None:
    def twice() -> None:
        _example()
        cluster = SETTINGS.cluster.model_copy(update={"name": "west"})
        west = Foundation("west", FoundationArgs(cloud=CLOUD, cluster=cluster), ResourceOptions(provider=_google()))
        kubernetes = kubernetes_provider("west", west.cluster.endpoint)
        fleet = _fleet("others", west.cluster, kubernetes)
        _job("others", fleet.spec, kubernetes)

    names = _planned(tmp_path, twice)
    assert names.count("tpus-cohort") == names.count("others-cohort") == 1


def _google() -> gcp.Provider:
    return gcp.Provider("mine", project=CLOUD.project, region=CLOUD.region, zone=CLOUD.zone)


def _foundation() -> None:
    args = FoundationArgs(cloud=CLOUD, cluster=SETTINGS.cluster)
    google = _google()
    made = Foundation("east", args, ResourceOptions(provider=google))
    on_google = ResourceOptions(provider=google, depends_on=[made])
    gcp.storage.Bucket("files", name=BUCKET, location=CLOUD.region, force_destroy=True, opts=on_google)
    for output in ("name", "endpoint", "node_account"):
        pulumi.export(output, getattr(made.cluster, output))


def _fleet(name: str, cluster: ClusterOutputs, kubernetes: pulumi.ProviderResource) -> Fleet:
    args = FleetArgs(spec=SPEC, cluster=cluster)
    google = gcp.Provider(f"of-{name}", project=CLOUD.project, region=CLOUD.region, zone=CLOUD.zone)
    return Fleet(name, args, ResourceOptions(providers=[google, kubernetes]))


def _job(name: str, fleet: FleetSpec, kubernetes: pulumi.ProviderResource) -> None:
    args = JobArgs(fleet=fleet, job=SETTINGS.jobs["tiny"], image=IMAGE, secrets={"TOKEN": "hidden"})
    Job(name, args, ResourceOptions(provider=kubernetes))


def _on_other_cluster(outputs: dict[str, Any]) -> None:
    _fleet("tpus", ClusterOutputs(**outputs), kubernetes_provider("theirs", outputs["endpoint"]))


def _on_other_fleet(outputs: dict[str, Any]) -> None:
    _job("mine", SPEC, kubernetes_provider("theirs", outputs["endpoint"]))


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Chain]:
    """A running sandbox, whose programs the engine finds."""
    with sandbox_in(tmp_path) as running:
        install(running.site)
        for name, value in environment(running.site).items():
            monkeypatch.setenv(name, value)
        yield running


def _stack(chain: Chain, name: str, program: Callable[[], None]) -> automation.Stack:
    def with_charts() -> None:
        if published_plugin():
            pulumi.runtime.register_resource_transform(local_charts(chain.programs, chain.site.root / "charts"))
        program()

    return stack_in(chain.site, chain.programs, name, with_charts)


@pytest.mark.complete
def test_each_component_works_on_plain_outputs_of_another_program(chain: Chain) -> None:
    foundation = _stack(chain, "foundation", _foundation)
    outputs: dict[str, Any] = {name: output.value for name, output in foundation.up().outputs.items()}
    fleet = _stack(chain, "fleet", lambda: _on_other_cluster(outputs))
    fleet.up()
    job = _stack(chain, "job", lambda: _on_other_fleet(outputs))
    job.up()
    for stack in (foundation, fleet, job):
        stack.preview(expect_no_changes=True)
    # Kueue has admitted it, and its pods may write where the job has its files.
    ledger = chain.site.buckets / BUCKET / "teams" / "research" / "jobs" / "tiny" / "current.json"
    wait_until(ledger.exists, lambda: chain.kubectl("get", "jobset,workload,localqueue,pods", "-A"))
    for stack in (job, fleet, foundation):
        assert stack.destroy().summary.result == "succeeded"

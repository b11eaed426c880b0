"""Node pools on the real engine and a real API server: what the next update does when Google has no machines.

The program is only the component of the slices, in a cluster that is a record of the simulated cloud.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_gcp as gcp
import pytest
from pulumi import automation

from infra.gke_cluster import ClusterOutputs
from infra.slices import TpuSlices, TpuSlicesArgs
from infra.stack.settings.read import parse
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.stack import FleetSpec
from sandbox import builds, certificates, programs
from sandbox.engine import environment, stack_in
from sandbox.providers.cloud import CLUSTER, NODE_POOL, PROJECT_MEMBER, PROJECT_SERVICE, Cloud
from sandbox.providers.installation import install
from sandbox.servers import Supervision, start_api
from sandbox.site import Site, administrator, create
from tests.chain.stack import ignore
from tests.infra.recording import stack_values

pytestmark = [pytest.mark.complete, pytest.mark.costs(cpu_seconds=60)]

FLAT = {"generation": "v6e", "topology": "2x4", "count": 1}
ON_REQUEST = {kind: {**FLAT, "capacity": {"kind": kind, "max_run_hours": 4}} for kind in ("flex-start", "queued")}
IRONWOOD = {"generation": "7x", "topology": "2x2x2", "count": 1, "capacity": "spot"}
CLOUD = parse(stack_values("local")).cloud


@dataclass
class Slices:
    """A program of slice groups."""

    site: Site
    groups: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    team: str = "a"
    """Value of a label."""
    answers: bool = True
    """Whether the cluster does."""

    def __call__(self) -> None:
        google = gcp.Provider("google", project=CLOUD.project, region=CLOUD.region, zone=CLOUD.zone)
        groups = {name: SliceGroup.model_validate(group) for name, group in self.groups.items()}
        endpoint = f"{self.site.address}:{self.site.api_server_port if self.answers else 1}"
        spec = FleetSpec(cloud=CLOUD, slices=groups, teams={}, bucket="b")
        cluster = ClusterOutputs(name="c", endpoint=endpoint, node_account="nodes@x")
        args = TpuSlicesArgs(spec, cluster, {"team": self.team})
        TpuSlices("slices", args, pulumi.ResourceOptions(provider=google))

    @property
    def nodes(self) -> int:
        return len(administrator(self.site).request("GET", "/api/v1/nodes")["items"])

    @property
    def stock_out(self) -> Path:
        return self.site.cloud / "stock-out"


@pytest.fixture
def slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Slices]:
    """A cluster without slices, whose API server runs."""
    site = create(tmp_path / "sandbox")
    found = builds.prepare(ignore)
    certificates.ensure(site)
    install(site)
    for name, value in environment(site).items():
        monkeypatch.setenv(name, value)
    location = {"location": CLOUD.region, "nodeLocations": [CLOUD.zone]}
    cluster = f"projects/{CLOUD.project}/locations/{CLOUD.region}/clusters/c"
    cloud = Cloud(site.cloud)
    cloud.keep(CLUSTER, cluster, {"name": "c", "masterVersion": "1.34.0-gke.0", **location})
    cloud.keep(PROJECT_SERVICE, "streaming", {"service": "containerfilesystem.googleapis.com"})
    granted = {"member": "serviceAccount:nodes@x", "role": "roles/serviceusage.serviceUsageConsumer"}
    cloud.keep(PROJECT_MEMBER, "streaming", granted)
    with ExitStack() as ending:
        supervision = Supervision(site.servers)
        ending.callback(supervision.stop)
        start_api(site, found, supervision)
        yield Slices(site)


@pytest.fixture
def stack(slices: Slices) -> automation.Stack:
    return stack_in(slices.site, programs.found(), "test", slices)


def test_a_slice_that_google_had_no_machines_for_is_not_taken_for_made(slices: Slices, stack: automation.Stack) -> None:
    slices.groups = {"trillium": {**FLAT, "count": 2, "capacity": "spot"}}
    slices.stock_out.write_text("trillium-1")
    with pytest.raises(automation.CommandError, match='trillium-1 was created in the error state "ERROR"'):
        stack.up()
    assert slices.nodes == 2
    missing = r"trillium-1 has 0 of 2 hosts\. .* multislice up -s test --replace '\*\*::slices-trillium-1'"
    later: list[Callable[[], object]] = [stack.up, stack.preview]
    for attempt in later:
        with pytest.raises(automation.CommandError, match=missing):
            attempt()
    slices.stock_out.unlink()
    replaced = stack.up(replace=["**::slices-trillium-1"]).summary.resource_changes
    assert replaced == {"same": 4, "replace": 1}
    assert slices.nodes == 4
    stack.preview(expect_no_changes=True)


def _come_up_without_hosts(slices: Slices, stack: automation.Stack) -> None:
    slices.groups = {"trillium": {**FLAT, "capacity": "spot"}}
    slices.stock_out.write_text("trillium-0")
    with pytest.raises(automation.CommandError, match="error state"):
        stack.up()


def test_a_change_of_a_slice_without_its_hosts_is_made_and_says_that_they_are_missing(
    slices: Slices, stack: automation.Stack
) -> None:
    _come_up_without_hosts(slices, stack)
    slices.team = "b"
    events: list[automation.EngineEvent] = []
    stack.up(on_event=events.append)
    told = [event.diagnostic_event for event in events if event.diagnostic_event]
    assert "slice trillium-0 has 0 of 2 hosts" in "".join(each.message for each in told if each.severity == "warning")


def test_an_unreachable_cluster_is_reported_with_the_slice(slices: Slices, stack: automation.Stack) -> None:
    _come_up_without_hosts(slices, stack)
    slices.answers = False
    with pytest.raises(automation.CommandError, match="slice trillium-0 may lack some of its 2 hosts"):
        stack.preview()


def test_a_slice_whose_hosts_came_late_is_taken_as_it_is(slices: Slices, stack: automation.Stack) -> None:
    _come_up_without_hosts(slices, stack)
    for name in ("late-0", "late-1"):
        labels = {"cloud.google.com/gke-nodepool": "trillium-0"}
        administrator(slices.site).request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    stack.up()
    stack.preview(expect_no_changes=True)


def test_right_after_an_update_there_is_no_drift(slices: Slices, stack: automation.Stack) -> None:
    slices.groups = {"trillium": {**FLAT, "capacity": "on-demand"}, "ironwood": IRONWOOD, **ON_REQUEST}
    stack.up()
    assert len(list(Cloud(slices.site.cloud).every(NODE_POOL))) == 4
    stack.preview(refresh=True, expect_no_changes=True)

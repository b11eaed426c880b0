"""A stack joins the cluster and the Kueue of another program, trains there, and leaves both as they were."""

import os
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest
from pulumi.automation import CommandError, EngineEvent

from infra.cluster.kubernetes import Json
from tests.chain.owner import CLUSTER, REGION, TEAM, Owner
from tests.chain.stack import NAMESPACE, SAVE_EVERY, STEPS, Chain, ignore, sandbox_in
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

JOB = "guest"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A sandbox in which the owner's program has run."""
    with sandbox_in(tmp_path_factory.mktemp("existing")) as chain:
        Owner(chain).up()
        yield chain


@pytest.fixture(scope="module")
def before(guest: Chain) -> dict[str, Json]:
    return Owner(guest).possessions(guest.api)


def attached(**sections: object) -> Values:
    """The local stack in the owner's cluster, with a training job."""
    values: Any = stack_values("local")
    values["cluster"] = {"name": "local", "existing": {"name": CLUSTER, "location": REGION}}
    training = {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS}
    values["jobs"] = {JOB: {**unnamed(values), "priority": "high", "training": training}}
    return {**values, **sections}


def test_names_of_others_are_refused_before_anything_is_changed(guest: Chain, before: dict[str, Json]) -> None:
    clash = attached(
        jobs={},
        image={"reference": f"trainer@sha256:{'1' * 64}"},
        teams={TEAM: {"namespace": TEAM, "quota": {"trillium": 16}}},
    )
    engine = guest.engine_on(clash)
    for attempt in (engine.preview, engine.up):
        told = _refusal(attempt)
        assert f"teams.{TEAM}: expected a name that is free in clusterqueues, got '{TEAM}'; rename the team" in told
        assert f"teams.{TEAM}.namespace: expected a name that is free in namespaces" in told
    assert Owner(guest).possessions(guest.api) == before


def test_what_the_cluster_does_not_have_is_refused_with_the_command_that_adds_it(guest: Chain) -> None:
    lacking = attached(datasets={"bucket": "corpora", "mount": True})
    lacking["slices"]["trillium"]["existing"] = True
    told = _refusal(guest.engine_on(lacking).preview)
    assert "--update-addons=GcsFuseCsiDriver=ENABLED" in told
    assert "2 node pools whose nodes have the label slice-group=trillium, got none" in told


def test_the_stack_trains_and_resumes_in_the_cluster_of_others(guest: Chain, before: dict[str, Json]) -> None:
    guest.engine_on(attached()).up(ignore)
    guest.wait_for_step(JOB, SAVE_EVERY + 1)
    os.kill(guest.host_pid(f"{JOB}-slice-1-1"), signal.SIGKILL)
    assert guest.wait_for_end(JOB)["terminalState"] == "Completed"
    status = guest.jobset(JOB)["status"]
    assert status["restarts"] == 1
    assert sorted(guest.losses(JOB)) == list(range(1, STEPS + 1))
    (workload,) = [each for each in guest.objects("workloads") if each["metadata"]["namespace"] == NAMESPACE]
    assert workload["spec"]["priority"] == 1000
    assert before.items() <= Owner(guest).possessions(guest.api).items()


def test_an_unchanged_stack_file_changes_nothing(guest: Chain) -> None:
    assert set(guest.engine_on(attached()).preview(ignore).change_summary) == {"same"}


def test_a_destroy_leaves_the_cluster_its_kueue_and_its_queues_byte_for_byte(
    guest: Chain, before: dict[str, Json]
) -> None:
    guest.engine_on(attached()).destroy(ignore)
    after = Owner(guest).possessions(guest.api)
    left = {name for name in after.keys() - before.keys() if not _is_kept(name)}
    assert not left
    assert {name: after.get(name) for name in before} == before


def _refusal(attempt: Callable[[Callable[[EngineEvent], None]], object]) -> str:
    """All that the engine says when it refuses."""
    events: list[EngineEvent] = []
    with pytest.raises(CommandError) as refused:
        attempt(events.append)
    return str(refused.value) + "".join(each.diagnostic_event.message for each in events if each.diagnostic_event)


def _is_kept(name: str) -> bool:
    """Whether a stack leaves it in Google Cloud on purpose: the bucket and its folders, and the enabled APIs."""
    return name.startswith(("storage.", "projects.Service-"))

from dataclasses import replace

import pytest

from cli.control.priority import priority
from cli.deployed import Deployed
from cli.halt import Halt
from infra.kubernetes import Json
from tests.cli.control.answers import answered
from tests.cli.control.cluster import APPLIED, CREATED, JOBSET, WORKLOAD, Change, Cluster, created, jobset


@pytest.fixture
def kueue(cluster: Cluster) -> None:
    """Carries the label over."""

    def follow(_: Change) -> None:
        cluster.objects[WORKLOAD]["spec"]["priority"] = 1000

    cluster.controllers = follow


@pytest.mark.usefixtures("kueue")
def test_a_job_that_pulumi_applied_is_applied_as_pulumi_and_nothing_else_of_it_changes(
    cluster: Cluster, stack: Deployed
) -> None:
    told = answered(lambda console: priority(stack, None, "high", console, as_json=True))
    ((method, path, body, query),) = cluster.changes
    assert (method, path, query) == ("PATCH", JOBSET, {"fieldManager": APPLIED})
    labels = {"kueue.x-k8s.io/queue-name": "team-queue", "kueue.x-k8s.io/priority-class": "high"}
    assert body["metadata"] == {"name": "train", "namespace": "research", "labels": labels}
    assert "suspend" not in body["spec"]
    assert told["done"] == "priority changed"
    assert told["notes"][0].startswith("normal before, high (1000) now")


@pytest.mark.usefixtures("kueue")
@pytest.mark.parametrize(("known", "query"), [(True, {"fieldManager": CREATED}), (False, {})])
def test_of_a_job_that_was_created_the_label_alone_is_changed_as_its_creator(
    cluster: Cluster, stack: Deployed, *, known: bool, query: Json
) -> None:
    cluster.objects[JOBSET] = created()
    if not known:
        cluster.objects[JOBSET]["metadata"]["managedFields"] = []
    answered(lambda console: priority(stack, None, "high", console, as_json=True))
    label = {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}
    assert cluster.changes == [("PATCH", JOBSET, label, query)]


def test_the_same_priority_changes_nothing(cluster: Cluster, stack: Deployed) -> None:
    told = answered(lambda console: priority(stack, None, "normal", console, as_json=True))
    assert told["done"] == "nothing"
    assert cluster.changes == []


def test_an_unknown_priority_is_told_with_those_there_are(cluster: Cluster, stack: Deployed) -> None:
    with pytest.raises(Halt, match=r"low \(10\), normal \(100\), high \(1000\), got 'urgent'") as halted:
        answered(lambda console: priority(stack, None, "urgent", console, as_json=True))
    assert halted.value.exit_status == 2
    assert cluster.changes == []


def test_a_job_that_has_ended_keeps_its_priority(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[JOBSET] = jobset(status={"terminalState": "Completed"})
    with pytest.raises(Halt, match="but train is completed"):
        answered(lambda console: priority(stack, None, "high", console, as_json=True))
    assert cluster.changes == []


def test_a_job_that_somebody_submitted_by_hand_is_no_business_of_the_stack_file(
    cluster: Cluster, stack: Deployed
) -> None:
    other = replace(stack, jobs=(), outputs={"queues": {"team-queue": "research"}})
    told = answered(lambda console: priority(other, "train", "normal", console, as_json=True))
    assert (told["done"], told["namespace"]) == ("nothing", "research")
    with pytest.raises(Halt, match=r"one of stack dev's jobs \(none\), got 'other'"):
        answered(lambda console: priority(other, "other", "normal", console, as_json=True))

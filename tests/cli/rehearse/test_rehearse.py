"""`multislice rehearse` on clusters that other tools made, through the command line."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from typer.testing import Result

from tests.cli.api_server import Played
from tests.cli.rehearse.clusters import (
    TPU,
    Rehearse,
    cluster,
    cluster_queue,
    forbid,
    jobset,
    local_queue,
    named,
    node,
    path,
    workload,
    xpk,
)


def test_objects_in_which_nothing_is_set_are_read(rehearse: Rehearse, run: Callable[..., Result]) -> None:
    empty = [{"kind": kind, **named("all")} for kind in ("Cohort", "ResourceFlavor", "ClusterQueue")]
    aside = {"kind": "LocalQueue", **named("aside", namespace="default")}
    objects = [*xpk(cohortName="all"), *empty, aside]
    assert rehearse(cluster(*objects), jobset())["outcome"] == "admitted"
    assert "expected a ClusterQueue of LocalQueue aside" in run(cluster(*objects), jobset(queue="aside")).output


def test_a_job_waits_behind_those_that_are_older_or_more_urgent(rehearse: Rehearse) -> None:
    holding, waits = workload("holds", 32), workload("waits", 16, None)
    found = rehearse(cluster(*xpk(), holding, waits), jobset())
    assert (found["outcome"], found["position"]) == ("waits", 2)
    assert found["simulated"]["ahead"] == ["default/waits"]
    assert [each["workload"] for each in found["simulated"]["holders"]] == ["default/holds"]


def test_hidden_workloads_hold_the_chips_that_the_queue_says(rehearse: Rehearse) -> None:
    def hidden(chips: int) -> Played:
        flavor, queue, *rest = xpk()
        total = [{"name": "1xv6e-16", "resources": [{"name": TPU, "total": str(chips)}]}]
        queue["status"]["flavorsReservation"] = total
        played = cluster(flavor, queue, *rest)
        played.collections[path("workloads", namespace="default")] = [workload("mine", 8)]
        forbid(played, "workloads")
        return played

    found = rehearse(hidden(16), jobset())
    assert found["outcome"] == "admitted"
    assert any("workloads" in note for note in found["notes"])
    assert rehearse(hidden(20), jobset())["outcome"] == "unknown"


def test_an_unreadable_priority_does_not_matter_if_the_job_fits(rehearse: Rehearse) -> None:
    job = jobset(labels={"kueue.x-k8s.io/priority-class": "high"})
    fits, full = cluster(*xpk()), cluster(*xpk(), workload("holds", 32))
    for played in (fits, full):
        forbid(played, "workloadpriorityclasses")
    assert rehearse(fits, job)["outcome"] == "admitted"
    assert rehearse(full, job)["outcome"] == "unknown"


def test_a_cluster_without_kueue_or_readable_queues_says_what_is_missing(run: Callable[..., Result]) -> None:
    none = cluster(*xpk())
    none.collections["/apis"] = []
    found = run(none, jobset())
    assert (found.exit_code, "Kueue" in found.output) == (1, True)
    no_jobsets = cluster(*xpk())
    no_jobsets.collections["/apis"].pop()
    found = run(no_jobsets, jobset())
    assert (found.exit_code, "JobSet" in found.output) == (1, True)
    unknown = run(cluster(*xpk(), version="v1alpha1"), jobset())
    assert (unknown.exit_code, "v1alpha1" in unknown.output) == (1, True)
    closed = cluster(*xpk())
    forbid(closed, "clusterqueues", "resourceflavors")
    found = run(closed, jobset())
    assert found.exit_code == 1
    assert all(f"list {plural}" in found.output for plural in ("clusterqueues", "resourceflavors"))


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "the zone"),
        ([node("us-east5-a"), node("us-east5-b")], "several"),
        ([node(**{"cloud.google.com/reservation-name": "ours"})], "reservation"),
        ([node("asia-east1-a")], "no list price"),
    ],
)
def test_an_unknown_price_has_a_reason(rehearse: Rehearse, nodes: Any, why: str) -> None:
    found = rehearse(cluster(*xpk(), *nodes), jobset())
    assert (found["usd_per_hour"], why in found["price_basis"]) == (None, True)


def test_spot_nodes_have_the_price_of_spot(rehearse: Rehearse) -> None:
    found = rehearse(cluster(*xpk(), node(**{"cloud.google.com/gke-spot": "true"})), jobset())
    assert found["usd_per_hour"] == pytest.approx(16 * 1.215)


def test_the_jobs_of_a_file_are_submitted_one_after_the_other(run: Callable[..., Result]) -> None:
    batch = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "probe-", "labels": {"kueue.x-k8s.io/queue-name": "multislice-queue"}},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": {TPU: "4"}}}], "nodeSelector": None}}},
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "head"}}
    documents = jobset("one"), service, jobset("two"), batch
    for source in (None, yaml.safe_dump_all(documents)):
        found = run(cluster(*xpk()), *documents, options=("-o", "json"), source=source)
        answer = json.loads(found.stdout)
        outcomes = [(each["job"], each["outcome"]) for each in answer["jobs"]]
        assert outcomes == [("default/one", "admitted"), ("default/two", "admitted"), ("default/probe-*", "waits")]
        assert (found.exit_code, answer["left_out"]) == (2, ["Service head"])


def test_two_jobs_of_one_name_are_an_error(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), jobset("one"), jobset("one"))
    assert (found.exit_code, found.output.count("job.yaml:")) == (1, 1)


def test_jobs_of_a_file_may_have_different_queues(run: Callable[..., Result]) -> None:
    chipless = [cluster_queue("cpus", {"cpu": {"1xv6e-16": 8}}), local_queue("cpus", "cpus")]
    second = [cluster_queue("second", {TPU: {"1xv6e-16": 16}}), local_queue("second", "second")]
    jobs = [jobset("none", "cpus"), jobset("first"), jobset("other", "second")]
    found = run(cluster(*xpk(16), *chipless, *second), *jobs, options=("-o", "json"))
    outcomes = [each["outcome"] for each in json.loads(found.stdout)["jobs"]]
    assert (found.exit_code, outcomes) == (2, ["never", "admitted", "admitted"])


def test_standard_input_that_is_not_yaml_has_a_line(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), source="kind: Service\n---\na: [")
    assert (found.exit_code, "standard input:3" in found.output) == (1, True)


def test_a_file_without_a_job_is_an_error(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), {"kind": "Service", "metadata": {"name": "head"}}, None, [1])
    assert (found.exit_code, "Service head" in found.output) == (1, True)


def test_all_errors_of_a_file_are_reported_with_their_lines(run: Callable[..., Result]) -> None:
    wrong = jobset("two", limits={"cpu": "many"}, pod={"nodeSelector": {"a": 1}})
    wrong["spec"]["replicatedJobs"][0]["replicas"] = "2"
    found = run(cluster(*xpk()), jobset("one", metadata={"namespace": "elsewhere"}), wrong, options=("-n", "default"))
    assert found.exit_code == 1
    lines = [line for line in found.output.splitlines() if "job.yaml:" in line]
    assert len(lines) == 4
    ends = ("metadata.namespace", "replicas", "cpu", "nodeSelector.a")
    assert all(any(end in line for line in lines) for end in ends)


@pytest.mark.parametrize(
    ("job", "wrong"),
    [
        (jobset(queue="typo"), "multislice-queue"),
        (jobset(queue=None), "kueue.x-k8s.io/queue-name"),
        (jobset(labels={"kueue.x-k8s.io/priority-class": "typo"}), "typo"),
        (jobset("holds"), "expected a new name"),
        (jobset("", metadata={}), "metadata.name"),
        (jobset(pod={"containers": [{}]}), TPU),
    ],
)
def test_an_error_that_only_the_cluster_shows_has_a_line(run: Callable[..., Result], job: Any, wrong: str) -> None:
    found = run(cluster(*xpk(), workload("holds", 4)), job)
    assert (found.exit_code, "job.yaml:" in found.output, wrong in found.output) == (1, True, True)


def test_the_text_begins_with_the_verdict(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk(), node(), workload("first", 32, priority=100)), jobset(pod={"priorityClassName": "high"}))
    assert found.exit_code == 0
    first, *others = found.stdout.splitlines()
    assert first.startswith("default/llama  would be admitted on flavor 1xv6e-16")
    assert any("default/first" in line for line in others)
    assert len(others) <= 5

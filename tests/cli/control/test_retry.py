import threading
from pathlib import Path

import pytest

from cli.control.retry import retry
from cli.deployed import Deployed
from cli.halt import Halt
from infra.kubernetes import Json
from tests.cli.control.answers import answered, saved
from tests.cli.control.cluster import APPLIED, CREATED, JOBSET, JOBSETS, Change, Cluster, created, jobset

REHEARSED = f"{JOBSETS}/traix"
"""Another name of the same length."""


@pytest.fixture
def failed(cluster: Cluster) -> None:
    cluster.objects[JOBSET] = jobset(status={"terminalState": "Failed"})


@pytest.mark.usefixtures("failed")
def test_a_failed_job_is_judged_then_deleted_then_made_as_its_declarer(
    cluster: Cluster, stack: Deployed, tmp_path: Path
) -> None:
    saved(tmp_path, 80)
    told = answered(lambda console: retry(stack, None, console, as_json=True))
    assert [(method, path, query) for method, path, _, query in cluster.changes] == [
        ("PATCH", REHEARSED, {"fieldManager": APPLIED, "dryRun": "All"}),
        ("DELETE", JOBSET, {}),
        ("PATCH", JOBSET, {"fieldManager": APPLIED}),
    ]
    assert (told["done"], told["state"]) == ("retried", "queued")
    assert "it goes on from step 80" in told["notes"]


@pytest.mark.usefixtures("failed")
def test_a_job_that_was_created_is_created_by_the_same_name(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[JOBSET] = created(status={"terminalState": "Failed"})
    answered(lambda console: retry(stack, None, console, as_json=True))
    assert [(method, path, query) for method, path, _, query in cluster.changes] == [
        ("POST", JOBSETS, {"fieldManager": CREATED, "dryRun": "All"}),
        ("DELETE", JOBSET, {}),
        ("POST", JOBSETS, {"fieldManager": CREATED}),
    ]


@pytest.mark.usefixtures("failed")
def test_a_job_of_which_nobody_knows_what_was_submitted_stays_as_it_is(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[JOBSET]["metadata"]["managedFields"] = []
    with pytest.raises(Halt, match="no managed fields that say what was submitted"):
        answered(lambda console: retry(stack, None, console, as_json=True))
    assert cluster.changes == []


@pytest.mark.usefixtures("failed")
def test_a_job_that_would_be_refused_is_not_deleted(cluster: Cluster, stack: Deployed) -> None:
    cluster.refuses["PATCH", REHEARSED] = 403, "cannot patch resource jobsets"
    with pytest.raises(Halt, match=r"once more \(nothing was changed\), got: cannot patch resource jobsets"):
        answered(lambda console: retry(stack, None, console, as_json=True))
    assert JOBSET in cluster.objects


def test_a_job_that_runs_is_not_started_again(cluster: Cluster, stack: Deployed) -> None:
    with pytest.raises(Halt, match="a job that has failed, but train is running; nothing was changed") as halted:
        answered(lambda console: retry(stack, None, console, as_json=True))
    assert halted.value.exit_status == 2
    assert cluster.changes == []


@pytest.mark.usefixtures("failed")
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ('{"storage": {"existing_run": "anew", "of": "another version"}, "new": 1}', "its existing_run is anew"),
        ("{}", "it begins at the first step"),
        ("half of i", "it begins at the first step"),
    ],
)
def test_a_specification_of_another_version_is_submitted_as_it_is(
    cluster: Cluster, stack: Deployed, spec: str, says: str
) -> None:
    live = cluster.objects[JOBSET]
    template = live["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["containers"][0]["env"] = [{"name": "JOB_SPEC", "value": spec}]
    whole: Json = {"f:spec": {"f:replicatedJobs": {'k:{"name":"slice"}': {".": {}, "f:template": {}}}}}
    live["metadata"]["managedFields"][-1]["fieldsV1"] = whole
    told = answered(lambda console: retry(stack, None, console, as_json=True))
    assert told["notes"][0].startswith(says)


@pytest.mark.usefixtures("failed")
def test_an_interruption_while_the_job_is_replaced_says_how_it_comes_back(
    cluster: Cluster, stack: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.control.retry.end", interrupt)
    with pytest.raises(
        Halt, match="it may be gone; see: multislice list -s dev\nIf it is, `pulumi up --refresh"
    ) as halted:
        answered(lambda console: retry(stack, None, console, as_json=True))
    assert halted.value.exit_status == 130
    assert JOBSET in cluster.objects


@pytest.mark.usefixtures("failed")
def test_a_cluster_that_is_away_for_a_moment_costs_no_job(cluster: Cluster, stack: Deployed) -> None:
    def away(change: Change) -> None:
        if change[0] == "DELETE":
            cluster.refuses["GET", JOBSET] = 503, "starting"
            cluster.refuses["PATCH", JOBSET] = 503, "starting"
            threading.Timer(1.2, cluster.refuses.clear).start()

    cluster.controllers = away
    told = answered(lambda console: retry(stack, None, console, as_json=True))
    assert (told["done"], JOBSET in cluster.objects) == ("retried", True)

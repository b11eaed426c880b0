import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from cli.doctor.checks import Verdict
from cli.doctor.doctor import GROUPS, doctor, examine, scope_of
from infra.stack.cost import BILL_OUTPUT
from tests.cli.doctor.health import (
    ACCESS,
    CONTROLLER,
    JOBSETS,
    LEASE,
    LOCAL_QUEUE,
    NODE,
    QUEUE,
    WORKLOADS,
    Cluster,
    examined,
    faults,
    healthy,
    node,
    said,
    scope,
    written,
)
from tests.cli.shown import check, read_output
from tests.cli.shown import console as shown_on


def test_nothing_is_wrong_with_a_healthy_stack_or_changed_in_it(tmp_path: Path) -> None:
    cluster = healthy()
    with scope(cluster, tmp_path) as found:
        checks = examined(found)
    assert [check for check in checks if check.verdict is Verdict.FAILED] == []
    assert {check.group for check in checks if check.verdict is Verdict.OK} == GROUPS.keys()
    assert {query.get("dryRun") for _, _, _, query in cluster.changes} == {"All"}
    # Only Google knows these.
    assert {check.group for check in checks if check.says == "the sandbox has no Google Cloud"} == {
        *("credentials", "APIs", "quota", "nodes")
    }


VERSION = "app.kubernetes.io/version"
MARK = {"key": "tpu-multislice.dev/bad-host", "effect": "NoSchedule", "timeAdded": "2026-11-01T00:00:00Z"}
NO_WEBHOOK = 500, 'failed calling webhook "mjobset.kb.io": connection refused'
DEAD, SILENT = "0 of 1 replicas", "Kubelet stopped posting node status."


def stop_queue(cluster: Cluster) -> None:
    cluster.objects[QUEUE] |= said("Active", "False", "FlavorNotFound: trillium")


def slow_clock(cluster: Cluster) -> None:
    cluster.objects[LEASE]["spec"]["renewTime"] = (datetime.now(UTC) - timedelta(minutes=9)).isoformat()


def quota_in_thousands(cluster: Cluster) -> None:
    cluster.objects[QUEUE]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "2k"


def mark_two_slices(cluster: Cluster) -> None:
    for host in ("pool-0-host-0", "pool-1-host-1"):
        cluster.objects[f"/api/v1/nodes/{host}"]["spec"]["taints"] = [MARK]


def hold_queue(cluster: Cluster) -> None:
    stop_queue(cluster)
    cluster.objects[QUEUE]["spec"]["stopPolicy"] = "Hold"
    cluster.objects[LOCAL_QUEUE] |= said("Active", "False", "the ClusterQueue is not active")


def lose(cluster: Cluster, *hosts: str) -> None:
    """Let the stack lose all hosts whose names begin so, but no system node."""
    system = node("system-0", "system")
    del system["metadata"]["labels"]["cloud.google.com/gke-tpu-accelerator"]
    cluster.objects["/api/v1/nodes/system-0"] = system
    for path in list(cluster.objects):
        if any(f"/{host}" in path for host in hosts):
            del cluster.objects[path]


BREAKS: dict[str, Callable[[Cluster], object]] = {
    "no right": lambda cluster: cluster.says.update({ACCESS: {"status": {"allowed": False}}}),
    "no Kueue": lambda cluster: cluster.objects.pop("/apis/kueue.x-k8s.io/v1beta2"),
    "fewer chips": lambda cluster: cluster.objects[NODE]["status"].update(allocatable={}),
    "quota in thousands": quota_in_thousands,
    "newer node": lambda cluster: cluster.objects[NODE]["status"].update(nodeInfo={"kubeletVersion": "v1.37.0"}),
    "other Kueue": lambda cluster: cluster.objects[CONTROLLER]["metadata"]["labels"].update({VERSION: "v0.18.6"}),
    "slow clock": slow_clock,
    "stopped queue": stop_queue,
    "dead controller": lambda cluster: cluster.objects[CONTROLLER].update(said("Available", "False", DEAD)),
    "dead webhook": lambda cluster: cluster.refuses.update({("POST", JOBSETS): NO_WEBHOOK}),
    "silent node": lambda cluster: cluster.objects[NODE]["status"].update(said("Ready", "Unknown", SILENT)["status"]),
    "bad host": lambda cluster: cluster.objects[NODE]["spec"].update(taints=[MARK]),
    "cordoned": lambda cluster: cluster.objects[NODE]["spec"].update(unschedulable=True),
    "two marked slices": mark_two_slices,
    "a queue on hold": hold_queue,
    "a slice without hosts": lambda cluster: lose(cluster, "pool-1-host-"),
    "a slice without one host": lambda cluster: lose(cluster, "pool-0-host-0"),
    "no slice with hosts": lambda cluster: lose(cluster, "pool-0-host-", "pool-1-host-"),
}


@pytest.mark.costs(cpu_seconds=8)
def test_what_is_wrong_is_said_as_in_the_golden_file(tmp_path: Path) -> None:
    shown: list[str] = []
    for name, breaks in BREAKS.items():
        cluster = healthy()
        breaks(cluster)
        with scope(cluster, tmp_path) as found:
            shown.append(written(name, faults(found)))
    check("doctor", "".join(shown))


@pytest.mark.parametrize(
    ("billed", "faulty"), [("on-request", False), (None, True)], ids=["on request", "of another version"]
)
def test_no_node_at_all_is_a_fault_unless_all_slices_come_on_request(
    tmp_path: Path, billed: str | None, faulty: bool
) -> None:
    cluster = healthy()
    lose(cluster, "pool-0-host-", "pool-1-host-")
    with scope(cluster, tmp_path) as found:
        outputs = dict(found.up.outputs)
        reported = outputs.pop(BILL_OUTPUT)
        if billed:
            outputs[BILL_OUTPUT] = {**reported, "groups": [{**group, "billed": billed} for group in reported["groups"]]}
        checks = examined(replace(found, deployed=replace(found.up, outputs=outputs)))
    (slices,) = [each for each in checks if (each.group, each.subject) == ("nodes", "slices")]
    assert "the cluster has no TPU node" in slices.says
    assert (slices.verdict is Verdict.FAILED) is faulty


def test_a_bucket_that_is_gone_is_reported(tmp_path: Path) -> None:
    with scope(healthy(), tmp_path / "gone") as found:
        ((group, subject, _, fix),) = faults(found)
    assert (group, subject, fix) == ("credentials", "bucket", "multislice up -s local --refresh")


def test_what_this_user_may_not_ask_is_no_fault(tmp_path: Path) -> None:
    cluster = healthy()
    cluster.refuses["GET", "/api/v1/nodes"] = 403, "nodes is forbidden"
    with scope(cluster, tmp_path) as found:
        checks = examined(found)
    assert [check for check in checks if check.verdict is Verdict.FAILED] == []
    assert {check.group for check in checks if "not allowed to read it: nodes is forbidden" in check.says} == {
        "quota",
        "versions",
        "clocks",
        "nodes",
    }


def test_a_waiting_job_is_reported_with_its_reason(tmp_path: Path) -> None:
    cluster = healthy()
    workload = {
        "metadata": {"name": "jobset-big"},
        **said("QuotaReserved", "False", "insufficient quota for google.com/tpu"),
    }
    cluster.objects[f"{WORKLOADS}/jobset-big"] = workload
    with scope(cluster, tmp_path) as found:
        reported = [check.says for check in examined(found) if check.subject == "namespace research"]
    assert "1 waiting: jobset-big: insufficient quota for google.com/tpu" in reported


def test_a_stack_that_does_not_stand_fails_once_and_the_rest_is_not_asked(tmp_path: Path) -> None:
    with scope(healthy(), tmp_path) as found:
        gone = replace(found, deployed=None, missing="expected stack 'local' to be up\nBring it up")
        assert faults(gone) == [("credentials", "stack", "expected stack 'local' to be up", "Bring it up")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("error: no stack named 'dev' found", "not deployed yet"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions", "is not logged in"),
    ],
)
def test_before_the_first_up_what_needs_the_cluster_is_skipped_in_one_line(
    said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pulumi", "gcloud"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {json.dumps(said)} >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    checks = list(examine(scope_of("dev", None)))
    skipped = [check.subject for check in checks if reason in check.says and check.verdict is Verdict.SKIPPED]
    assert {"stack", "queues", "slices", "clock"} <= set(skipped)
    assert not [check for check in checks if check.subject == "stack" and check.verdict is Verdict.FAILED]
    console = shown_on()
    doctor("dev", None, console, as_json=False)
    shown = read_output(console)
    assert (shown.count("not deployed yet"), shown.count(f"{len(skipped)} checks")) == (1, 1)


def test_a_stack_file_with_errors_fails_and_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with scope(healthy(), tmp_path) as found:
        wrong = replace(found, settings=None, unread="Pulumi.local.yaml:9: slices: wrong\n1 error")
        (fault,) = faults(wrong)
        skipped = [check.says for check in examined(wrong) if check.subject == "TPU quota"]
    assert fault[:3] == ("credentials", "stack file", "Pulumi.local.yaml:9: slices: wrong")
    assert fault[3].endswith("multislice review -s local")
    assert skipped == ["the stack file, which has the number of chips, cannot be read"]


def test_a_cluster_that_does_not_answer_is_one_fault_and_is_not_waited_for_again(tmp_path: Path) -> None:
    with scope(healthy(), tmp_path) as found:
        pass
    ((group, subject, says, _),) = faults(found)
    assert (group, subject) == ("credentials", "stack")
    assert "the cluster does not answer" in says
    reported = [check.says for check in examined(found) if check.group == "nodes"]
    assert reported[0] == "the cluster does not answer, see above"


def test_a_failed_check_is_the_exit_status_and_everything_is_in_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = io.StringIO()
    status = doctor("local", tmp_path / "no-sandbox", Console(file=written), as_json=True)
    reported = json.loads(written.getvalue())
    assert status == 2
    assert reported["stack"] == "local"
    assert [check["verdict"] for check in reported["checks"]].count("failed") == 1
    assert "expected a sandbox in the folder" in reported["checks"][0]["says"]


def test_objects_that_are_half_there_end_no_check_with_a_traceback(tmp_path: Path) -> None:
    cluster = healthy()
    del cluster.objects[NODE]["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
    cluster.objects[LEASE]["spec"] = {}
    with scope(cluster, tmp_path) as found:
        reported = {check.subject: check.says for check in examined(found)}
    assert reported["slice without a node pool"] == "1 of 2 hosts exist"

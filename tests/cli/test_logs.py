import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import Halt
from cli.logs import Selection, logs, span
from sandbox.site import create
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, JOBSETS, PODS, stamped
from tests.cli.api_server import Played, playing
from tests.cli.shown import read_output
from tests.cli.standing import running, running_by_pathways, stack

SELECTION = Selection(None, False, None, False, False, None, None, False)


def read(server: Played, selection: Selection, folder: Path, sandbox: Path | None = None) -> tuple[int, list[str]]:
    shown = Console(file=io.StringIO(), width=100, highlight=False)
    status = logs(stack(server, folder), selection, sandbox, shown)
    return status, read_output(shown).splitlines()


def test_by_pathways_the_head_leads_and_is_one_of_all_hosts(tmp_path: Path) -> None:
    with playing(running_by_pathways()) as server:
        assert read(server, SELECTION, tmp_path) == (0, ["tiny-head-0-0 one", "tiny-head-0-0 two"])
        _, lines = read(server, replace(SELECTION, all_hosts=True), tmp_path)
        assert {line.partition(" ")[0] for line in lines} == {"head-0-0", *(f"slice-{a}-{b}" for a, b in HOSTS)}


def test_a_host_that_is_none_of_the_job_is_refused(server: Played, tmp_path: Path) -> None:
    with pytest.raises(Halt, match=r"--host must name a host of job tiny \(slice-0-0, .*\), got 'slice-9-9'"):
        read(server, replace(SELECTION, host="slice-9-9"), tmp_path)


def test_a_job_that_waits_has_no_lines_and_is_reported(server: Played, tmp_path: Path) -> None:
    server.collections[PODS] = []
    with pytest.raises(Halt, match=r"no host of job tiny has started; `multislice explain"):
        read(server, SELECTION, tmp_path)


def test_a_job_that_is_not_there_is_reported(server: Played, tmp_path: Path) -> None:
    server.collections[JOBSETS] = []
    for follow in (False, True):
        with pytest.raises(Halt, match="job tiny does not exist in namespace research; `multislice list -s dev`"):
            read(server, replace(SELECTION, follow=follow), tmp_path)


def test_a_job_by_hand_is_found_in_the_namespaces_of_the_teams(server: Played, tmp_path: Path) -> None:
    by_hand = api_objects.jobset(name="hand")
    server.change(JOBSETS, by_hand)
    assert read(server, replace(SELECTION, job="hand"), tmp_path)[0] == 0
    with pytest.raises(Halt, match=r"one of the jobs of stack dev \(tiny\), got 'x'"):
        read(server, replace(SELECTION, job="x"), tmp_path)


def test_an_unreachable_cluster_is_reported_for_every_selection(tmp_path: Path) -> None:
    with playing(running()) as gone:
        pass
    for job in ("tiny", "hand"):
        with pytest.raises(
            Halt, match="expected the cluster to return the logs of a job, got: .*\nTry again, or find the cause: mul"
        ):
            read(gone, replace(SELECTION, job=job), tmp_path)


def test_a_node_that_is_away_keeps_no_other_hosts_lines_back(server: Played, tmp_path: Path) -> None:
    server.refused[f"{PODS}/tiny-slice-1-1-0abcd/log"] = 502
    shown = Console(file=io.StringIO(), width=100)
    with pytest.raises(Halt, match="could not read all lines of:\n  slice-1-1 on node gke-slice-1-1: no"):
        logs(stack(server, tmp_path), replace(SELECTION, all_hosts=True), None, shown)
    assert len(read_output(shown).splitlines()) == 6


def test_who_may_read_no_log_is_not_left_waiting(server: Played, tmp_path: Path) -> None:
    server.refused[f"{PODS}/tiny-slice-0-0-0abcd/log"] = 403
    with pytest.raises(Halt, match="return the logs of a job, got: no"):
        read(server, replace(SELECTION, follow=True), tmp_path)


def test_without_such_pods_the_message_has_the_query_for_their_logs(server: Played, tmp_path: Path) -> None:
    with pytest.raises(Halt, match=r"their logs were deleted.\nGoogle Cloud keeps the logs: gcloud logging read"):
        read(server, replace(SELECTION, previous=True), tmp_path)


def test_a_sandbox_keeps_the_logs_of_pods_that_are_gone(server: Played, tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    current = "research_tiny-slice-0-0-0abcd_uid-tiny-slice-0-0-0abcd"
    for name, text in (
        (f"{current}", "now"),
        ("research_tiny-slice-0-0-gone1_u1", "one\ntwo"),
        ("research_other-0-0-x_u", "x"),
    ):
        folder = site.pod_logs(name)
        folder.mkdir(parents=True)
        (folder / "trainer.log").write_text(f"{text}\n")
    before = replace(SELECTION, previous=True)
    assert read(server, before, tmp_path, site.root) == (0, ["one", "two"])
    assert read(server, replace(before, tail_lines=1), tmp_path, site.root) == (0, ["two"])
    with pytest.raises(Halt, match=r"--since needs the times of lines, .* such as --tail 100"):
        read(server, replace(before, since=timedelta(minutes=10)), tmp_path, site.root)


@pytest.mark.parametrize("there", [True, False], ids=["its JobSet is there", "its JobSet is gone"])
def test_of_what_a_sandbox_keeps_the_head_leads_as_well(tmp_path: Path, there: bool) -> None:
    site = create(tmp_path / "sandbox")
    for host in ("head-0-0", "slice-0-0"):
        folder = site.pod_logs(f"research_tiny-{host}-gone1_u-{host}")
        folder.mkdir(parents=True)
        (folder / "program.log").write_text(f"of {host}\n")
    with playing(running_by_pathways()) as server:
        if not there:
            server.collections[JOBSETS] = server.collections[PODS] = []
        assert read(server, replace(SELECTION, previous=True), tmp_path, site.root) == (0, ["of head-0-0"])


def staying(server: Played, slice_index: int, *lines: str) -> None:
    """Let the first host of a slice be in a pod that stays, with these lines, one a second."""
    found = api_objects.pod(slice_index, 0)
    found["spec"]["containers"][0]["command"] = ["python", "-m", "multislice_run.supervisor", "--", "python"]
    server.change(PODS, found)
    server.logs[found["metadata"]["name"]] = stamped(lines, at=60, every=1)


def test_the_attempt_before_the_newest_is_in_the_log_of_a_pod_that_stays(server: Played, tmp_path: Path) -> None:
    before = replace(SELECTION, previous=True)
    first, second, third = (f"attempt {number} of the job begins" for number in (1, 2, 3))
    staying(server, 0, "warning", first, "a", second, "b", "c", third, "d")
    assert read(server, before, tmp_path) == (0, [second, "b", "c"])
    assert read(server, replace(before, tail_lines=1), tmp_path) == (0, ["c"])
    _, lines = read(server, replace(SELECTION, as_json=True), tmp_path)
    assert [json.loads(line)["attempt"] for line in lines] == [None, 0, 0, 1, 1, 1, 2, 2]
    staying(server, 0, "warning", first, "a")
    with pytest.raises(Halt, match="it has not restarted"):
        read(server, before, tmp_path)


def test_of_a_host_that_was_replaced_the_sandbox_has_the_attempt_before(server: Played, tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    first, second = (f"attempt {number} of the job begins" for number in (1, 2))
    staying(server, 0, first, "a", second, "b")
    staying(server, 1, second, "new")
    folder = site.pod_logs("research_tiny-slice-1-0-gone1_u1")
    folder.mkdir(parents=True)
    (folder / "trainer.log").write_text(f"{first}\nold\n")
    before = replace(SELECTION, previous=True, all_hosts=True)
    _, lines = read(server, before, tmp_path, site.root)
    assert sorted(lines) == ["slice-0-0  a", f"slice-0-0  {first}", f"slice-1-0  {first}", "slice-1-0  old"]


def test_times_are_read_with_their_units() -> None:
    assert [span(text) for text in ("30s", "10m", "2h", "1d")] == [
        timedelta(seconds=30),
        timedelta(minutes=10),
        timedelta(hours=2),
        timedelta(days=1),
    ]
    with pytest.raises(Halt, match="--since must be a whole number of seconds, .* such as 10m, got '10'"):
        span("10")

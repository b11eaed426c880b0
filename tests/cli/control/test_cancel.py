from pathlib import Path

import pytest

from cli.control.cancel import cancel
from cli.deployed import Deployed
from cli.halt import Halt
from tests.cli.control.answers import answered, saved, shown
from tests.cli.control.cluster import JOBSET, Cluster, jobset


def test_a_cancelled_job_is_deleted_with_all_it_has_and_its_last_checkpoint_is_named(
    cluster: Cluster, stack: Deployed, tmp_path: Path
) -> None:
    saved(tmp_path, 80)
    told = answered(lambda console: cancel(stack, None, console, yes=True, as_json=True))
    ((method, path, body, _),) = cluster.changes
    assert (method, path) == ("DELETE", JOBSET)
    assert body["propagationPolicy"] == "Foreground"
    assert body["preconditions"] == {"uid": "1"}
    assert (told["job"], told["done"], told["state"], told["checkpoint"]["step"]) == ("train", "cancelled", None, 80)


def test_what_up_does_afterwards_is_said(stack: Deployed) -> None:
    text = shown(lambda console: cancel(stack, None, console, yes=True, as_json=False))
    assert "job train cancelled" in text
    assert "it has saved no checkpoint" in text
    assert "`pulumi up --stack dev` leaves it away until a setting of the job changes" in text


def test_without_a_terminal_to_ask_nothing_is_changed(
    cluster: Cluster, stack: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 80)
    monkeypatch.setattr("sys.stdin", (tmp_path / "train" / "current.json").open())
    with pytest.raises(Halt, match=r"which is running\? its last checkpoint is step 80 in .*; agree with --yes|--yes"):
        answered(lambda console: cancel(stack, None, console, yes=False, as_json=True))
    assert cluster.changes == []


@pytest.mark.parametrize(("ended", "word"), [("Completed", "completed"), ("Failed", "failed")])
def test_a_job_that_has_ended_cannot_be_cancelled(cluster: Cluster, stack: Deployed, ended: str, word: str) -> None:
    cluster.objects[JOBSET] = jobset(status={"terminalState": ended})
    with pytest.raises(Halt, match=f"but train is {word}; nothing was changed") as halted:
        answered(lambda console: cancel(stack, None, console, yes=True, as_json=True))
    assert halted.value.exit_status == 2
    assert cluster.changes == []


def test_a_job_that_is_gone_is_told(cluster: Cluster, stack: Deployed) -> None:
    del cluster.objects[JOBSET]
    with pytest.raises(Halt, match="got none: it was cancelled, or never submitted; `pulumi up --refresh` makes it"):
        answered(lambda console: cancel(stack, None, console, yes=True, as_json=True))


def test_who_has_no_right_to_it_is_sent_to_whom_has(cluster: Cluster, stack: Deployed) -> None:
    cluster.refuses["DELETE", JOBSET] = 403, "jobsets is forbidden"
    with pytest.raises(Halt, match="delete job train, got: jobsets is forbidden; ask who may run `up`"):
        answered(lambda console: cancel(stack, None, console, yes=True, as_json=True))

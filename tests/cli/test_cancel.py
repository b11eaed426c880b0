import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import Halt
from cli.cancel import cancel
from cli.deployed import Deployed
from tests.cli.api_objects import JOBSETS
from tests.cli.api_server import Played
from tests.cli.standing import finish, running, stack, trained
from tests.workloads.report.runs import event


@pytest.fixture
def deployed(server: Played, tmp_path: Path) -> Deployed:
    """A stack whose job `tiny` runs and has saved a checkpoint."""
    run = trained(tmp_path)
    with (run / "ledger" / "1-0.jsonl").open("a") as ledger:
        ledger.write(json.dumps(event(40, "checkpoint_saved", step=4)) + "\n")
    return stack(server, tmp_path)


def cancelled(deployed: Deployed, *, yes: bool = True, as_json: bool = True) -> str:
    written = io.StringIO()
    assert cancel(deployed, None, Console(file=written, width=200), yes=yes, as_json=as_json) == 0
    return written.getvalue()


def test_a_cancelled_job_is_deleted_with_its_pods_and_its_last_checkpoint_is_named(
    server: Played, deployed: Deployed
) -> None:
    found = json.loads(cancelled(deployed))
    assert (found["job"], found["namespace"], found["checkpoint_step"]) == ("tiny", "research", 4)
    ((name, options),) = server.deleted
    assert (name, options["propagationPolicy"], options["preconditions"]) == ("tiny", "Foreground", {"uid": "uid-tiny"})
    assert server.collections[JOBSETS] == []


def test_the_command_that_submits_it_again_is_printed(server: Played, deployed: Deployed, tmp_path: Path) -> None:
    assert "submit it again: multislice up -s dev --replace '**::job-tiny'" in cancelled(deployed, as_json=False)
    server.collections[JOBSETS] = running().collections[JOBSETS]
    assert f"multislice up -s dev --sandbox {tmp_path} --replace '**::job-tiny'" in cancelled(
        replace(deployed, sandbox=tmp_path), as_json=False
    )


def test_without_a_terminal_to_ask_nothing_is_changed(
    server: Played, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(Halt, match=r"which is running\? its last checkpoint is step 4(.|\n)*pass --yes"):
        cancelled(deployed, yes=False)
    assert server.deleted == []


@pytest.mark.parametrize("ended", ["Completed", "Failed"])
def test_a_job_that_has_ended_cannot_be_cancelled(server: Played, deployed: Deployed, ended: str) -> None:
    finish(server, ended)
    with pytest.raises(Halt, match=f"but tiny is {ended.lower()}; nothing was changed") as halted:
        cancelled(deployed)
    assert (halted.value.exit_status, server.deleted) == (2, [])


def test_a_job_that_is_gone_cannot_be_cancelled(server: Played, deployed: Deployed) -> None:
    server.collections[JOBSETS] = []
    with pytest.raises(Halt, match="but tiny is missing"):
        cancelled(deployed)


def test_somebody_without_the_right_to_it_reads_what_members_may_do(server: Played, deployed: Deployed) -> None:
    server.refused_changes[f"{JOBSETS}/tiny"] = "jobsets is forbidden"
    with pytest.raises(Halt, match="did not delete job tiny: jobsets is forbidden; docs/explanation/security.md"):
        cancelled(deployed)

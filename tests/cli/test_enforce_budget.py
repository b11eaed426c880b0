"""What a stack has used, on a cluster and files that are played. `tests/chain/test_budget.py` stops a real job."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from cli import stack_file
from cli.answer import Form, Halt
from cli.enforce_budget import enforce_budget
from tests.cli.api_objects import JOBSETS, WORKLOADS, condition, workload
from tests.cli.api_server import Played
from tests.cli.standing import stack
from tests.infra.recording import Values, stack_values
from tests.workloads.report.runs import crashed_and_resumed

USD_PER_HOUR = 16 * 1.215
"""List price of the 16 chips of the job of `dev`."""


def held(seconds: int, past: int = 0) -> Values:
    """The Workload of a job that held its chips for `seconds`, and for `past` before its last eviction."""
    found = workload(conditions=[condition("Admitted", "True", 50), condition("Finished", "True", 50 + seconds)])
    found["status"]["accumulatedPastExecutionTimeSeconds"] = past
    return found


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Played) -> Values:
    """The sections of the stack file of `dev`, which has a budget that is not used up."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(tmp_path)
    server.collections[WORKLOADS] = [held(10)]
    found = stack_values("dev")
    found["job"]["max_hours"] = 1
    found["budget"] = {"usd_total": 1000}
    write(found, tmp_path)
    return found


def write(values: Values, folder: Path) -> None:
    config = {f"{stack_file.PREFIX}{section}": value for section, value in values.items()}
    (folder / "stacks" / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))


def enforced(server: Played, storage: Path) -> Any:
    written = io.StringIO()
    assert enforce_budget(stack(server, storage), Form.JSON, Console(file=written)) == 0
    return json.loads(written.getvalue())


@pytest.mark.usefixtures("values")
def test_every_attempt_counts_at_its_price_and_the_time_between_them_does_not(server: Played, tmp_path: Path) -> None:
    crashed_and_resumed(tmp_path / "tiny", 3600.0, 7200.0)
    found = enforced(server, tmp_path)
    # 15.5 seconds at a dollar and 12 seconds at two dollars a second. The 14.5 seconds between them were a pause.
    assert found["usd_used"] == pytest.approx(15.5 + 24)
    assert (found["used_up"], found["changed"]) == (False, [])


@pytest.mark.usefixtures("values")
def test_all_runs_of_a_job_count_even_after_it_was_deleted(server: Played, tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path / "tiny", 3600.0, 3600.0)
    run.rename(run.with_name("two"))
    crashed_and_resumed(tmp_path / "again", 3600.0, 3600.0).rename(run)
    server.collections[JOBSETS] = server.collections[WORKLOADS] = []
    (job,) = enforced(server, tmp_path)["jobs"]
    assert job == {"job": "tiny", "namespace": "research", "runs": 2, "usd": pytest.approx(2 * (15.5 + 12))}


@pytest.mark.usefixtures("values")
def test_a_job_without_records_counts_by_the_time_that_it_held_its_chips(server: Played, tmp_path: Path) -> None:
    server.collections[WORKLOADS] = [held(1800, past=1800)]
    assert enforced(server, tmp_path)["usd_used"] == pytest.approx(USD_PER_HOUR)


@pytest.mark.usefixtures("values")
def test_attempts_without_a_price_count_at_the_list_price(server: Played, tmp_path: Path) -> None:
    crashed_and_resumed(tmp_path / "tiny")
    assert enforced(server, tmp_path)["usd_used"] == pytest.approx(27.5 * USD_PER_HOUR / 3600, abs=1e-6)


def test_a_stack_without_a_limit_can_be_scheduled_like_the_others(
    server: Played, values: Values, tmp_path: Path
) -> None:
    write(values | {"budget": {"usd_per_hour": 1e6}}, tmp_path)
    crashed_and_resumed(tmp_path / "tiny", 3600.0, 3600.0)
    found = enforced(server, tmp_path)
    assert (found["usd_total"], found["used_up"], found["changed"]) == (None, False, [])


@pytest.mark.usefixtures("values")
def test_nothing_is_changed_on_a_guess(server: Played, tmp_path: Path) -> None:
    server.refused[WORKLOADS] = 403
    with pytest.raises(Halt, match="nothing was changed"):
        enforced(server, tmp_path)
    del server.refused[WORKLOADS]
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "runs").write_text("a file in place of a folder")
    with pytest.raises(Halt, match="nothing was changed"):
        enforced(server, tmp_path)

"""What the teams of a stack have used, on a cluster that is played. `tests/chain/test_budget.py` stops a real job."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from cli import stack_file
from cli.answer import Form, Halt
from cli.enforce_budget import enforce_budget
from infra.stack.names import USED_ANNOTATION
from tests.cli.api_objects import JOBSETS, QUEUES, START, WORKLOADS, condition, workload
from tests.cli.api_server import Played
from tests.cli.standing import stack
from tests.infra.recording import Values, stack_values
from tests.workloads.report.runs import crashed_and_resumed

USD_PER_HOUR = 16 * 1.215
"""List price of 16 chips of `dev`."""


def job(*conditions: Values, past: int = 0, name: str = "tiny", flavor: str = "v6e-2x4-spot-trillium") -> Values:
    """The Workload of a job on 16 chips, which held them for `past` seconds before its last eviction."""
    found = workload(f"jobset-{name}", conditions, name)
    container = {"resources": {"limits": {"google.com/tpu": "4"}}}
    found["spec"]["podSets"] = [{"count": 4, "template": {"spec": {"containers": [container]}}}]
    found["status"]["accumulatedPastExecutionTimeSeconds"] = past
    found["status"]["admission"]["podSetAssignments"] = [{"flavors": {"google.com/tpu": flavor}}]
    return found


def held(seconds: int, past: int = 0, name: str = "tiny", since: int = 50) -> Values:
    """The Workload of a job that has held its chips for `seconds` and ended."""
    ends = condition("Admitted", "True", since), condition("Finished", "True", since + seconds)
    return job(*ends, past=past, name=name)


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


def enforced(server: Played, storage: Path, status: int = 0) -> Any:
    written = io.StringIO()
    assert enforce_budget(stack(server, storage), Form.JSON, Console(file=written)) == status
    return json.loads(written.getvalue())


def hours(server: Played, storage: Path) -> float:
    """Hours of 16 chips that are counted now."""
    return enforced(server, storage)["usd_used"] / USD_PER_HOUR


@pytest.mark.usefixtures("values")
def test_the_time_for_which_jobs_hold_chips_counts_once_however_often_it_is_counted(
    server: Played, tmp_path: Path
) -> None:
    server.collections[WORKLOADS] = [held(1800, past=1800), held(3600, name="other")]
    found = enforced(server, tmp_path)
    assert found["teams"] == [{"team": "research", "usd": pytest.approx(2 * USD_PER_HOUR)}]
    assert (found["used_up"], found["changed"]) == (False, [])
    assert hours(server, tmp_path) == pytest.approx(2)


@pytest.mark.usefixtures("values")
def test_a_running_job_counts_up_to_each_run(server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.collections[WORKLOADS] = [job(condition("Admitted", "True", 0))]
    for at in (1800, 5400, 5400):
        monkeypatch.setattr("cli.enforce_budget.time.time", lambda at=at: START + at)
        assert hours(server, tmp_path) == pytest.approx(at / 3600)


@pytest.mark.usefixtures("values")
def test_what_was_counted_of_a_deleted_job_stays_counted(server: Played, tmp_path: Path) -> None:
    server.collections[WORKLOADS] = [held(7200)]
    enforced(server, tmp_path)
    server.collections[JOBSETS] = server.collections[WORKLOADS] = []
    assert hours(server, tmp_path) == pytest.approx(2)
    server.collections[WORKLOADS] = [held(3600, name="again", since=90_000)]
    # The day between the two submissions belongs to no job.
    assert hours(server, tmp_path) == pytest.approx(3)


@pytest.mark.usefixtures("values")
def test_every_admission_of_an_evicted_job_counts(server: Played, tmp_path: Path) -> None:
    server.collections[WORKLOADS] = [held(3600)]
    assert hours(server, tmp_path) == pytest.approx(1)
    evicted = condition("Admitted", "False", 5450), condition("Evicted", "True", 5450)
    server.collections[WORKLOADS] = [job(*evicted, past=5400)]
    assert hours(server, tmp_path) == pytest.approx(1.5)
    server.collections[WORKLOADS] = [held(1800, past=5400, since=9000)]
    assert hours(server, tmp_path) == pytest.approx(2)
    # Kueue counts the past only of jobs with a limit on their time.
    server.collections[WORKLOADS] = [held(1800, name="free"), held(1800, past=5400, since=9000)]
    enforced(server, tmp_path)
    server.collections[WORKLOADS] = [held(900, name="free", since=9000), held(1800, past=5400, since=9000)]
    assert hours(server, tmp_path) == pytest.approx(2.75)


@pytest.mark.usefixtures("values")
def test_forged_and_deleted_records_change_nothing(server: Played, tmp_path: Path) -> None:
    server.collections[WORKLOADS] = [held(3600)]
    for folder in ("tiny", "teams/research/jobs/forged"):
        crashed_and_resumed(tmp_path / folder, 1e90, 1e90)
    found = enforced(server, tmp_path)
    assert (found["usd_used"], found["used_up"]) == (pytest.approx(USD_PER_HOUR), False)
    crashed_and_resumed(tmp_path / "again", 0.0, 0.0)
    shutil.rmtree(tmp_path / "tiny")
    assert hours(server, tmp_path) == pytest.approx(1)


def test_a_used_up_budget_stops_the_queues_until_it_is_raised(server: Played, values: Values, tmp_path: Path) -> None:
    server.collections[WORKLOADS] = [held(3600)]
    # The jobs of the stack file fit into the budget, or it would be refused.
    values["job"]["max_hours"] = 0.25
    write(values | {"budget": {"usd_total": 10}}, tmp_path)
    found = enforced(server, tmp_path, status=2)
    assert (found["used_up"], found["changed"], found["stopped"]) == (True, ["research"], ["research"])
    (queue,) = server.collections[QUEUES]
    assert queue["spec"]["stopPolicy"] == "HoldAndDrain"
    assert enforced(server, tmp_path, status=2)["changed"] == []
    assert server.collections[QUEUES][0]["metadata"]["annotations"] == queue["metadata"]["annotations"]
    write(values | {"budget": {"usd_total": 1000}}, tmp_path)
    assert enforced(server, tmp_path)["changed"] == ["research"]
    (queue,) = server.collections[QUEUES]
    assert "stopPolicy" not in queue["spec"]
    assert queue["metadata"]["annotations"].keys() == {USED_ANNOTATION}


def test_the_price_is_that_of_the_stack_file_and_of_the_flavor(server: Played, values: Values, tmp_path: Path) -> None:
    (group,) = values["slices"]
    values["slices"]["dear"] = values["slices"][group] | {"capacity": "on-demand"}
    (team,) = values["teams"].values()
    team["quota"]["dear"] = 0
    write(values | {"prices": {"usd_per_chip_hour": {group: 1.0, "dear": 10.0}}}, tmp_path)
    server.collections[WORKLOADS] = [held(3600)]
    assert enforced(server, tmp_path)["usd_used"] == pytest.approx(16)
    # A flavor that the stack file no longer has costs at most the highest price.
    unknown = held(3600, name="unknown")
    unknown["status"]["admission"]["podSetAssignments"] = []
    server.collections[WORKLOADS] = [unknown]
    assert enforced(server, tmp_path)["usd_used"] == pytest.approx(16 + 160)


def test_a_stack_without_a_limit_can_be_scheduled_like_the_others(
    server: Played, values: Values, tmp_path: Path
) -> None:
    write(values | {"budget": {"usd_per_hour": 1e6}}, tmp_path)
    found = enforced(server, tmp_path)
    assert (found["usd_total"], found["used_up"], found["changed"]) == (None, False, [])


@pytest.mark.usefixtures("values")
def test_nothing_is_changed_on_a_guess(server: Played, tmp_path: Path) -> None:
    server.refused[WORKLOADS] = 403
    with pytest.raises(Halt, match="nothing was changed"):
        enforced(server, tmp_path)
    del server.refused[WORKLOADS]
    (queue,) = server.collections[QUEUES]
    for text in ("{", "3", "[1]", '["much", {}]', '[1, {"uid": [1]}]', '[1, {"uid": 1}]'):
        queue["metadata"]["annotations"] = {USED_ANNOTATION: text}
        with pytest.raises(Halt, match=f"kubectl annotate clusterqueue research {USED_ANNOTATION}-"):
            enforced(server, tmp_path)
    assert server.applied == {}

"""A sweep and the job of another team on real Kueue: idle chips are lent, and come back to who needs them."""

from collections.abc import Generator
from typing import Any

import pytest
import yaml

from infra.stack.names import NO_JOB_RUNS
from tests.chain.shared import SLEEPER
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

OWN_SLICE = {"quota": {"trillium": 8}}
"""Two slices of eight chips, one for each team."""
RUNS = {"study-0", "study-1", "study-2"}


def _stack(*seeds: str, urgent: bool = False) -> Values:
    values = stack_values("local")
    del values["job"]
    values["teams"] = {
        "research": {"namespace": "research"} | OWN_SLICE,
        "product": {"namespace": "product"} | OWN_SLICE,
    }
    values["scheduling"] = {"fair_sharing": True}
    values["jobs"] = {"study": SLEEPER | {"sweep": {"env.SEED": list(seeds)}}}
    if urgent:
        values["jobs"]["urgent"] = SLEEPER | {"team": "product", "priority": "low"}
    values["allow_interruption"] = True
    return values


@pytest.fixture(scope="module")
def sweep(chain: Chain) -> Generator[Chain]:
    """A sweep of three runs, which has both slices."""
    chain.engine_on(_stack("0", "1", "2")).up(ignore)
    _wait_for_two_of(chain, RUNS)
    yield chain
    chain.engine_on(_stack("0", "1", "2")).destroy(ignore, [NO_JOB_RUNS])


def test_a_sweep_uses_idle_chips_of_others_and_its_runs_wait_behind_each_other(sweep: Chain) -> None:
    names = {job["metadata"]["name"] for job in sweep.objects("jobsets")}
    assert {name for name in names if name.startswith("study-")} == RUNS
    assert len(_admitted(sweep)) == 2, "whichever two of them: they were submitted at once"


def test_another_teams_job_gets_its_chips_back_from_a_sweep(sweep: Chain) -> None:
    sweep.engine_on(_stack("0", "1", "2", urgent=True)).up(ignore)
    wait_until(lambda: "urgent" in _admitted(sweep), lambda: yaml.safe_dump(sweep.objects("workloads")))
    _wait_for_two_of(sweep, RUNS | {"urgent"})
    assert len(_admitted(sweep) & RUNS) == 1, "the sweep keeps what is its own team's"


def test_a_value_that_is_added_begins_one_run_and_touches_no_other(sweep: Chain) -> None:
    operations = Operations()
    sweep.engine_on(_stack("0", "1", "2", "3", urgent=True)).up(operations)
    of_jobs = {(kind, name) for kind, name in operations.changes if name.startswith("job-")}
    assert of_jobs == {("create", "job-study-3")}


def _admitted(chain: Chain) -> set[str]:
    """Jobs that have chips; Kueue leaves those that have ended admitted."""
    return {_owner(workload) for workload in chain.objects("workloads") if _conditions(workload) == {"Admitted"}}


def _owner(workload: Any) -> str:
    return workload["metadata"]["ownerReferences"][0]["name"]


def _conditions(workload: Any) -> set[str]:
    """Of `Admitted` and `Finished`, those that hold."""
    conditions = workload.get("status", {}).get("conditions", [])
    return {found["type"] for found in conditions if found["status"] == "True"} & {"Admitted", "Finished"}


def _wait_for_two_of(chain: Chain, names: set[str]) -> None:
    def two() -> bool:
        return len(_admitted(chain)) == 2 and _admitted(chain) <= names

    wait_until(two, lambda: yaml.safe_dump(chain.objects("workloads")))

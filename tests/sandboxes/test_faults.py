"""A fault that no other test of `make test-all` injects, and what a job with two faults costs; `make faults` injects
all that there are."""

import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import pytest

from infra.stack.cost import usd_per_job_hour
from infra.stack.programs import PRICE_KEY
from infra.stack.settings.read import parse
from infra.stack.settings.stack import FleetSpec
from tests.chain.stack import NAMESPACE, PATIENCE_SECONDS, Chain
from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Expected, Fault
from tests.faults.hosts import HANGS_SOON, at_least
from tests.faults.sabotage import add_sabotages
from tests.faults.trial import STEADY, declare, inject, submit
from tests.infra.one_job import only_job
from tests.infra.recording import stack_values
from workloads.report.goodput import goodput

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def steady(chain: Chain) -> Mapping[int, float]:
    """Losses of a job that nothing has struck, in the sandbox of the other tests."""
    return declare(chain)


def test_a_host_that_dies_during_a_save_costs_its_job_no_more_than_its_row_says(
    chain: Chain, steady: Mapping[int, float]
) -> None:
    """Killed hosts, preempted ones and a drained queue are what other tests of the chain go through anyway."""
    (fault,) = [fault for fault in CATALOGUE if fault.name == "save-arrays-in-part"]
    # How soon it goes on is for `make faults` to say, on a machine that does nothing else.
    unhurried = replace(fault.expected, recovery_seconds=PATIENCE_SECONDS)
    assert inject(chain, replace(fault, expected=unhurried), steady)[1] == ()


@pytest.mark.usefixtures("steady")
def test_a_start_records_the_price_that_the_program_declares(chain: Chain) -> None:
    (start,) = chain.history(STEADY).starts
    settings = parse(stack_values("local"))
    assert start.usd_per_hour == usd_per_job_hour(FleetSpec.of(settings), only_job(settings))


@pytest.mark.usefixtures("steady")
def test_the_fault_that_cost_most_is_the_one_that_held_the_job_up_longest(chain: Chain) -> None:
    """A host leaves with notice; in the next start another one stands still until the watchdog ends it.

    The watchdog waits longer than hosts on a busy machine take to compile after the first of them.
    """
    training = {"steps": 60, "evaluate_every_steps": 60, "step_timeout_minutes": 1.5}
    settings = {**HANGS_SOON, "training": training}
    slow = at_least(0.3)
    edit = add_sabotages(slow, replace(slow, start=1))
    job = Fault("two-faults", "a cheap one and a hang", Expected(), job=settings, edit=edit)
    price = {"metadata": {"name": f"{job.name}-price"}, "data": {PRICE_KEY: "3600"}}
    chain.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", price)
    submit(chain, job)
    try:
        chain.wait_for_step(job.name, 10)
        began = min(_moments(chain, job.name, "running", "startedAt"))
        chain.send_to_pods(signal.SIGTERM, job.name, "slice-1-0")
        chain.wait_for_step(job.name, 30)
        chain.send(signal.SIGSTOP, job.name, "slice-1-1")
        chain.wait_for_end(job.name)
        ended = max(_moments(chain, job.name, "terminated", "finishedAt"))
        spent = goodput(chain.history(job.name).attempts)
    finally:
        chain.remove(job.name)
    left, stopped, last = [start.ending for start in spent.starts]
    # JAX may see before the watchdog that a host is silent. That host records no end.
    assert (left, last) == ("PREEMPTED", "DONE")
    assert stopped in ("HANG", "KILLED")
    assert {loss.after for loss in spent.losses} == {stopped, "PREEMPTED"}
    assert spent.losses[0].seconds > spent.losses[1].seconds
    # If JAX sees it, a start on a busy machine may take as long.
    assert spent.losses[0].after == stopped or stopped == "KILLED"
    # A dollar a second. What the API server counts beyond that is the start and the end of Python, three times each.
    assert spent.usd == pytest.approx(spent.seconds)
    assert spent.seconds == pytest.approx(ended - began, rel=0.1, abs=5)


def _moments(chain: Chain, job: str, state: str, name: str) -> list[float]:
    """When the containers of the job's pods began or ended, as the API server has it."""
    states = [each["state"] for pod in chain.pods(job) for each in pod["status"].get("containerStatuses", ())]
    return [datetime.fromisoformat(each[state][name]).timestamp() for each in states if state in each]

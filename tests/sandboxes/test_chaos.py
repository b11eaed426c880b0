"""Faults that no other test injects, and what a job with two of them costs; `make chaos` injects all that there are."""

import signal
from dataclasses import replace
from datetime import datetime

import pytest

from chaos.faults import CATALOGUE
from chaos.faults.hosts import HANGS_SOON, at_least
from chaos.sabotage import add_sabotages
from chaos.target import END_SECONDS, NAMESPACE, STEADY, Fault, Target, comes_with_the_job
from chaos.trial import carry_out
from chaos.verdict import Expected
from infra.job import usd_per_job_hour
from infra.programs import PRICE_KEY
from infra.settings.read import parse
from infra.submission import FleetPlace
from tests.chain.stack import Chain, ignore
from tests.infra.one_job import only_job
from tests.infra.recording import stack_values
from workloads.report.goodput import goodput

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]

QUICK = ("save-arrays-in-part",)
"""Killed hosts, preempted ones and a drained queue are what other tests of the chain go through anyway."""


@pytest.fixture(scope="module")
def target(chain: Chain) -> Target:
    """The sandbox of the other tests, with a job that nothing has struck."""
    chain.engine(name=STEADY).up(ignore)
    chain.wait_for_end(STEADY)
    return chain.target


@pytest.mark.parametrize("fault", [fault for fault in CATALOGUE if fault.name in QUICK], ids=lambda fault: fault.name)
def test_what_the_entry_of_a_fault_demands_holds(target: Target, fault: Fault) -> None:
    # How soon it goes on is for `make chaos` to say, on a machine that does nothing else.
    unhurried = replace(fault.expected, recovery_seconds=END_SECONDS)
    assert carry_out(target, replace(fault, expected=unhurried)).broken == ()


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in CATALOGUE}) == len(CATALOGUE)


def test_a_start_records_the_price_that_the_program_declares(target: Target) -> None:
    (start,) = target.history(STEADY).starts
    settings = parse(stack_values("local"))
    assert start.usd_per_hour == usd_per_job_hour(FleetPlace.of(settings), only_job(settings))


def test_the_fault_that_cost_most_is_the_one_that_held_the_job_up_longest(target: Target) -> None:
    """A host leaves with notice; in the next start another one stands still until the watchdog ends it.

    The watchdog waits longer than hosts on a busy machine take to compile after the first of them.
    """
    training = {"steps": 60, "evaluate_every_steps": 60, "step_timeout_minutes": 1.5}
    settings = {**HANGS_SOON, "training": training}
    slow = at_least(0.3)
    edit = add_sabotages(slow, replace(slow, start=1))
    job = Fault("two-faults", "a cheap one and a hang", comes_with_the_job, Expected(), None, settings, edit=edit)
    price = {"metadata": {"name": f"{job.name}-price"}, "data": {PRICE_KEY: "3600"}}
    target.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", price)
    target.submit(job)
    try:
        target.wait_for_step(job.name, 10)
        began = min(_moments(target, job.name, "running", "startedAt"))
        target.send(signal.SIGTERM, job.name, "slice-1-0")
        target.wait_for_step(job.name, 30)
        target.send(signal.SIGSTOP, job.name, "slice-1-1")
        target.wait_for_end(job.name)
        ended = max(_moments(target, job.name, "terminated", "finishedAt"))
        spent = goodput(target.history(job.name).attempts)
    finally:
        target.remove(job.name)
    left, stopped, last = [start.ending for start in spent.starts]
    # JAX may see before the watchdog that a host is silent. That host records no end.
    assert (left, last) == ("PREEMPTED", "DONE")
    assert stopped in ("HANG", "KILLED")
    assert {loss.after for loss in spent.losses} == {stopped, "PREEMPTED"}
    assert spent.losses[0].seconds > spent.losses[1].seconds
    # If JAX sees it, a start on a busy machine may take as long.
    assert spent.losses[0].after == "HANG" or stopped == "PEER_LOST"
    # A dollar a second. What the API server counts beyond that is the start and the end of Python on a busy machine.
    assert spent.usd == pytest.approx(spent.seconds)
    assert spent.seconds == pytest.approx(ended - began, rel=0.05, abs=5)


def _moments(target: Target, job: str, state: str, name: str) -> list[float]:
    """When the containers of the job's pods began or ended, as the API server has it."""
    states = [each["state"] for pod in target.pods(job) for each in pod["status"].get("containerStatuses", ())]
    return [datetime.fromisoformat(each[state][name]).timestamp() for each in states if state in each]

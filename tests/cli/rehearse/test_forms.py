"""`multislice rehearse` reads the queues and JobSets that xpk and Cluster Toolkit create."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from tests.cli.rehearse.clusters import cluster, node, workload


@dataclass(frozen=True)
class Form:
    """What a tool creates for two v6e slices of 16 chips, and a job for both."""

    tool: str
    version: str
    """Version of Kueue's API."""
    queue: str
    flavor: str
    preempts: bool
    """Whether an urgent job gets the chips of less urgent ones."""


FORMS = [
    Form("xpk", "v1beta1", "multislice-queue", "2xv6e-16", preempts=True),
    Form("gcluster", "v1beta2", "user-queue", "tpuv6e-flavor", preempts=False),
]


@pytest.fixture(params=FORMS, ids=lambda form: form.tool)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


def rehearsed(run: Callable[..., Result], form: Form, *others: dict[str, Any]) -> dict[str, Any]:
    """Return the answer about the job of the file, in a cluster with the other objects of the file and these."""
    text = (Path(__file__).parent / "forms" / f"{form.tool}.yaml").read_text()
    *created, _ = yaml.safe_load_all(text)
    found = run(cluster(*created, *others, version=form.version), source=text, options=("-o", "json"))
    (job,) = json.loads(found.stdout)["jobs"]
    return job


def test_the_job_of_another_tool_is_admitted_by_the_queue_of_that_tool(run: Callable[..., Result], form: Form) -> None:
    found = rehearsed(run, form, node())
    assert (found["outcome"], found["job"], found["priority"]) == ("admitted", "default/llama", 500)
    assert (found["local_queue"], found["simulated"]["flavors"]) == (form.queue, [form.flavor])
    assert (found["chips"], found["usd_per_hour"]) == (32, pytest.approx(32 * 2.7))


def test_only_the_queue_of_xpk_preempts(run: Callable[..., Result], form: Form) -> None:
    holder = workload("holder", 32, form.flavor, priority=250, queue=form.queue)
    assert rehearsed(run, form, holder)["outcome"] == ("preempts" if form.preempts else "waits")

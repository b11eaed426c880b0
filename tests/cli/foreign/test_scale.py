"""Processor time of `list` and `explain` on a cluster with 2,000 Workloads, without that of its API server."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from cli.deployed import Deployed, Foreign, Kubectl
from cli.explain.explain import command as explain
from cli.status import jobs
from infra.cluster.kubernetes import ApiServer
from infra.stack.names import KUEUE_API_VERSION
from tests.cli.foreign.clusters import EVENTS, JOBSETS, PODS, jobset, pods, waiting, workload
from tests.cli.rehearse.clusters import path, xpk
from tests.cli.shown import console, read_output

COUNT, RUNNING = 2_000, 40
_SECONDS = 1.2
_MANAGED = [{"manager": "kueue", "fieldsV1": {f"f:field-{number}": {"f:name": {}} for number in range(100)}}]
"""Makes an object as large as those of a real cluster, some 4 KB."""


@dataclass
class Answer:
    data: bytes
    status: int = 200


class Stored:
    """A pool of connections to a server whose answers are ready."""

    def __init__(self, collections: dict[str, list[Any]]) -> None:
        self.answers = {at: json.dumps({"items": items}).encode() for at, items in collections.items()}

    def request(self, method: str, url: str, **_: object) -> Answer:
        return Answer(self.answers.get(urlsplit(url).path, b'{"items": []}'))


@pytest.fixture(scope="module")
def large() -> Deployed:
    """Some jobs run, and all others wait."""
    names = [f"job-{number:04}" for number in range(COUNT)]
    jobsets = [jobset(name, suspend=place >= RUNNING) for place, name in enumerate(names)]
    workloads = [workload(name) if place < RUNNING else waiting(name) for place, name in enumerate(names)]
    for each in (*jobsets, *workloads):
        each["metadata"]["managedFields"] = _MANAGED
    about = [{"kind": "JobSet", "name": name} for name in names]
    events = [{"metadata": {"uid": each["name"]}, "involvedObject": each, "type": "Warning"} for each in about]
    queues = {path(f"{each['kind'].lower()}s"): [each] for each in xpk() if each["kind"] != "PriorityClass"}
    running = [pod for name in names[:RUNNING] for pod in pods(name)]
    pool: Any = Stored({**queues, JOBSETS: jobsets, path("workloads"): workloads, PODS: running, EVENTS: events})
    foreign = Foreign("default", KUEUE_API_VERSION, True, ())
    return Deployed("", {}, ApiServer("http://api", pool), "", (), kubectl=Kubectl(None, None, None), foreign=foreign)


@pytest.mark.costs(cpu_seconds=8)
@pytest.mark.parametrize(
    ("command", "text"),
    [
        (lambda *words: jobs(*words, json=False), f"job-{COUNT - 1}"),
        (lambda *words: jobs(*words, json=True), f"job-{COUNT - 1}"),
        (lambda found, shown: explain(found, f"job-{COUNT - 1}", shown, json=False), f"{COUNT - RUNNING} in line"),
    ],
    ids=["list", "list -o json", "explain"],
)
def test_a_large_cluster_takes_little_processor_time(command: Callable[..., int], text: str, large: Deployed) -> None:
    shown, before = console(), time.process_time()
    assert command(large, shown) == 0
    assert time.process_time() - before < _SECONDS
    assert text in read_output(shown)

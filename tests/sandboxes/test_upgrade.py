"""JobSet and Kueue go from the minor before to the current one under a running and a queued job.

In a sandbox of its own, which starts with the versions before: the program is run with their versions in
the place of its own.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import yaml

from infra import fleet, operators
from infra.cluster.kubernetes import ApiError
from infra.stack.names import QUEUE_LABEL
from sandbox import builds, daemon
from sandbox.programs import PREVIOUS, PROGRAMS, Program, version_of
from sandbox.site import administrator, create
from tests.chain.rivals import idle_jobset
from tests.chain.stack import JOBSETS, NAMESPACE, Chain, Operations, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]

RUNNING, QUEUED = "running", "queued"
REFUSED_SECONDS = 60
"""How long webhooks may refuse at most: while one manager stops and the next one starts."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A sandbox that has the operators of the minor before, too."""
    site = create(tmp_path_factory.mktemp("sandbox"))
    found = builds.prepare(ignore)
    builds.prepare_previous(ignore)
    daemon.start(site, ignore)
    try:
        yield Chain(site, found, tmp_path_factory.mktemp("stacks"))
    finally:
        daemon.stop(site)


def test_running_and_queued_jobs_outlive_an_upgrade_of_jobset_and_kueue(chain: Chain, monkeypatch: pytest.MonkeyPatch):
    values = _endless_job()
    # The previous JobSet cannot restart one slice and leave the others, so the job has no rules for that.
    monkeypatch.setattr(fleet, "JOBSET", replace(operators.JOBSET, name="another"))
    with monkeypatch.context() as patched:
        patched.setattr(operators, "JOBSET", replace(operators.JOBSET, version=_version(PREVIOUS, "jobset")))
        patched.setattr(operators, "KUEUE", replace(operators.KUEUE, version=_version(PREVIOUS, "kueue")))
        # The previous JobSet does not know the gate, and would not start with it.
        patched.setattr(operators, "_gated", lambda text: text)
        chain.engine_on(values).up(ignore)
    assert _deployed(chain) == {"jobset": _version(PREVIOUS, "jobset"), "kueue": _version(PREVIOUS, "kueue")}
    assert _most_pod_sets(chain) == 10
    chain.wait_for_step(RUNNING, 3)
    chain.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(_sleeping(QUEUED)))
    wait_until(
        lambda: _reserved(chain, QUEUED) == "False", lambda: chain.kubectl("get", "workloads", "-A", "-o", "yaml")
    )
    of_queued = ("jobs", f"jobset.sigs.k8s.io/jobset-name={QUEUED}")
    wait_until(lambda: len(chain.objects(*of_queued)) == 2, lambda: chain.kubectl("get", "jobs", "-A"))
    before, last = _identity(chain), max(chain.losses(RUNNING))
    operations = Operations()
    with _refusals(chain) as refusals:
        chain.engine_on(values).up(operations)
    assert ("replace", f"job-{RUNNING}") not in operations.changes
    assert _deployed(chain) == {name: _version(PROGRAMS, name) for name in ("jobset", "kueue")}
    # Kinds come with their chart: Kueue 0.19 takes more pod sets, JobSet 0.12 counts restarts by job.
    assert _most_pod_sets(chain) == 18
    assert "jobRestarts" in chain.kubectl("get", "crd", "jobsets.jobset.x-k8s.io", "-o", "yaml")
    assert max(refusals, default=0) < REFUSED_SECONDS
    wait_until(lambda: max(chain.losses(RUNNING)) > last, lambda: f"step {last} was the last")
    assert _identity(chain) == before
    assert chain.jobset(RUNNING)["status"].get("restarts", 0) == 0
    assert _reserved(chain, QUEUED) == "False"
    assert chain.jobset(QUEUED)["spec"]["suspend"] is True
    chain.kubectl("delete", "jobset", RUNNING, "-n", NAMESPACE)
    assert chain.wait_for_end(QUEUED)["terminalState"] == "Completed"


def _endless_job() -> Values:
    values: Any = stack_values("local")
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["job"] |= {"name": RUNNING, "existing_run": "new", "training": training}
    return values


def _sleeping(name: str) -> dict[str, Any]:
    """A job that takes all chips of the queue for a second."""
    return idle_jobset(name, NAMESPACE, {QUEUE_LABEL: NAMESPACE}, slices=2, hosts=2, seconds=1)


def _version(where: tuple[Program, ...], name: str) -> str:
    return next(version_of(program) for program in where if program.name == name)


def _deployed(chain: Chain) -> dict[str, str]:
    """Versions of the operators by chart."""
    labels = [found["metadata"]["labels"] for found in chain.objects("deployments")]
    return {each["app.kubernetes.io/name"]: each["app.kubernetes.io/version"].removeprefix("v") for each in labels}


def _most_pod_sets(chain: Chain) -> int:
    schema = "{.spec.versions[?(@.name=='v1beta2')].schema.openAPIV3Schema}"
    told = chain.kubectl("get", "crd", "workloads.kueue.x-k8s.io", "-o", f"jsonpath={schema}")
    return yaml.safe_load(told)["properties"]["spec"]["properties"]["podSets"]["maxItems"]


def _reserved(chain: Chain, job: str) -> str | None:
    """Whether Kueue keeps quota for the job, in its words; None: it has not looked at it yet."""
    workloads = [found for found in chain.objects("workloads") if f"-{job}-" in found["metadata"]["name"]]
    conditions = [each for found in workloads for each in found.get("status", {}).get("conditions", [])]
    return next((each["status"] for each in conditions if each["type"] == "QuotaReserved"), None)


def _identity(chain: Chain) -> set[str]:
    """Jobs, their workloads and pods."""
    kinds = ("jobsets", "jobs", "workloads", "pods")
    return {found["metadata"]["uid"] for kind in kinds for found in chain.objects(kind)}


@contextmanager
def _refusals(chain: Chain) -> Generator[list[float]]:
    """How long each spell lasted in which no JobSet could be submitted; complete at the end."""
    server, ended, spells = administrator(chain.site), threading.Event(), list[float]()

    def probe() -> None:
        refused_since: float | None = None
        while not ended.wait(0.2):
            try:
                server.request("POST", JOBSETS, _sleeping("probe"), {"dryRun": "All"})
            except ApiError:
                refused_since = refused_since or time.monotonic()
            else:
                spells.extend([time.monotonic() - refused_since] if refused_since else [])
                refused_since = None

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        yield spells
    finally:
        ended.set()
        prober.join()

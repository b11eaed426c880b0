"""A running sandbox with the stack `local` in it, on which jobs are submitted, struck and watched.

Owns the sandbox's life and all that is asked of its API server and its files. What strikes is in `chaos.faults`.
"""

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from etils import epath

from chaos.fault import Fault
from chaos.observed import Observed, observe
from infra.jobset import render
from infra.settings import parse
from infra.submission import submission
from sandbox import daemon, programs
from sandbox.api_server import UNREACHABLE, ApiServer, Json
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.programs import Programs
from sandbox.site import Site, create
from workloads.report.history import read_history

NAMESPACE = "research"
STEPS = 24
SAVE_EVERY = 8
STEADY = "steady"
"""Name of the job that nothing strikes."""

JOB: Mapping[str, object] = {
    "training": {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS},
    "existing_run": "anew",
}
"""Settings of every job, over those of the stack."""

_BUCKET = "sandbox-local-checkpoints"
_JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
_POLL_SECONDS = 0.2
_END_SECONDS = 300
_GONE_SECONDS = 60


class NotInTime(RuntimeError):
    """What was waited for did not come; the message says what stood there instead."""


@dataclass(frozen=True)
class Field:
    """The sandbox under fire."""

    site: Site
    programs: Programs
    api: ApiServer

    def submit(self, fault: Fault) -> None:
        """Create the fault's job as the stack would."""
        manifest = render(submission(parse(_values(fault.name, fault.job)), "trainer@sha256:" + 64 * "0"))
        self.api.request("POST", _JOBSETS, manifest)

    def jobset(self, name: str) -> Json:
        return self.api.find(f"{_JOBSETS}/{name}") or {}

    def objects(self, path: str, selector: str = "") -> list[Json]:
        """Objects of a kind by its API path."""
        return self.api.request("GET", path, query={"labelSelector": selector} if selector else None)["items"]

    def pods(self, job: str) -> list[Json]:
        return self.objects(f"/api/v1/namespaces/{NAMESPACE}/pods", f"jobset.sigs.k8s.io/jobset-name={job}")

    def pid(self, pod: str) -> int:
        """Process of the running pod whose name begins with `pod`."""
        (found,) = [path for path in self.site.pods.glob(f"{NAMESPACE}_{pod}-*/pid") if path.read_text().strip()]
        return int(found.read_text())

    def folder(self, job: str) -> Path:
        """Of the job's files."""
        return self.site.buckets / _BUCKET / job

    def run_folder(self, job: str) -> Path:
        """Of the job's newest run; a folder that is not there before its first start."""
        current = self.folder(job) / "current.json"
        return self.folder(job) / "runs" / (json.loads(current.read_text())["run"] if current.exists() else "none")

    def steps(self, job: str) -> list[Json]:
        """The lines of all steps that the job has written down, start by start."""
        parts = sorted(self.run_folder(job).glob("steps/*.jsonl"), key=lambda part: _numbers(part.stem))
        return [json.loads(line) for part in parts for line in part.read_text().splitlines()]

    def wait_for_step(self, job: str, step: int) -> None:
        """Block until `step` is done.

        Raises:
            NotInTime: it is not within five minutes.
        """
        self.wait(f"step {step} of {job}", lambda: any(line["step"] >= step for line in self.steps(job)), _END_SECONDS)

    def wait_for_end(self, job: str) -> Json:
        """The JobSet's status once it is Completed or Failed.

        Raises:
            NotInTime: it is neither within five minutes.
        """
        self.wait(f"the end of {job}", lambda: "terminalState" in self.jobset(job).get("status", {}), _END_SECONDS)
        return self.jobset(job)["status"]

    def remove(self, job: str) -> None:
        """Delete the job and wait until its pods are gone."""
        self.api.delete(f"{_JOBSETS}/{job}", {"propagationPolicy": "Foreground"})
        self.wait(f"the pods of {job} to go", lambda: not self.pods(job) and not self.jobset(job), _GONE_SECONDS)

    def observed(self, job: str, struck: float) -> Observed:
        """What became of the job, struck at that moment in seconds since the epoch."""
        batches = {int(line["step"]): int(line["batch"]) for line in self.steps(job) if not line["skipped"]}
        history = read_history(epath.Path(self.run_folder(job)))
        return observe(self.jobset(job).get("status", {}), history, batches, struck)

    def wait(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Block until `holds`.

        Raises:
            NotInTime: it does not within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not _tried(holds):
            if time.monotonic() > deadline:
                pods = [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in self._all_pods()]
                raise NotInTime(f"expected {what} within {seconds:.0f} s; pods: {pods}")
            time.sleep(_POLL_SECONDS)

    def _all_pods(self) -> list[Json]:
        try:
            return self.objects(f"/api/v1/namespaces/{NAMESPACE}/pods")
        except UNREACHABLE:
            return []


@contextmanager
def opened(root: Path) -> Generator[Field]:
    """The field in a new sandbox in `root`, which is stopped afterwards; its job has ended undisturbed."""
    site = create(root / "sandbox")
    found = programs.prepare(lambda _: None)
    daemon.start(site, lambda _: None)
    try:
        field = Field(site, found, ApiServer.of(site))
        stack_file = root / "Pulumi.local.yaml"
        stack_file.write_text(yaml.safe_dump({"config": _config(STEADY, {})}))
        Engine(site, found, stack_file).up(lambda _: None)
        field.wait_for_end(STEADY)
        yield field
    finally:
        daemon.stop(site)


def _tried(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except UNREACHABLE:
        # The fault may be that the API server is away.
        return False


def _config(name: str, job: Mapping[str, object]) -> dict[str, Any]:
    config = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())["config"]
    training = {**_mapping(JOB["training"]), **_mapping(job.get("training", {}))}
    config["tpu-multislice:job"] |= {**JOB, **job, "training": training, "name": name}
    return config


def _values(name: str, job: Mapping[str, object]) -> dict[str, object]:
    return {key.removeprefix("tpu-multislice:"): value for key, value in _config(name, job).items()}


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _numbers(stem: str) -> tuple[int, ...]:
    return tuple(int(part) for part in stem.split("-"))

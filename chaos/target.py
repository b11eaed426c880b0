"""A fault, and its target: a running sandbox with the stack `local`, its jobs and their files."""

import json
import os
import re
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from etils import epath

from chaos.membership import observe_membership
from chaos.store_log import reads_of_arrays
from chaos.verdict import Expected, Observed, observe
from infra import names
from infra.jobset import render
from infra.kubernetes import UNREACHABLE, ApiServer, Json
from infra.settings.read import parse
from infra.submission import submission
from sandbox import builds, daemon
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.programs import Programs
from sandbox.servers import holds_within
from sandbox.site import Site, administrator, create
from workloads.report.history import History, read_history
from workloads.report.records import Failure, read_failures

TAKE_STEP = "workloads.training.step:CompiledProgram.step"
"""The trainer's function that takes a step, for sabotage."""


def recorded_before(step: int) -> int:
    """Return the newest step that the leader has recorded if a host fails or stops in `step`: it reads the result of a
    step while the next one runs."""
    return step - 2


def _nothing(_: object) -> None:
    """Change and prepare nothing."""


def comes_with_the_job(_: "Target", job: str) -> None:
    """Do nothing, because the job's pods contain the fault."""


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue."""

    name: str
    """Name of the fault and of its job: at most 26 lower-case letters, digits and hyphens."""
    what: str
    """Description for the report."""
    strike: Callable[["Target", str], None]
    """Injects the fault into the job of that name, which has just done `at_step`. It may wait and repair. Damage that
    it leaves behind outlives the job."""
    expected: Expected
    at_step: int | None = None
    """Step after which the fault strikes. None if it strikes as soon as the job is submitted."""
    job: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the job, which override those in `JOB`."""
    before: Callable[["Target"], None] = _nothing
    """Prepares what the job needs, before it is submitted."""
    anytime: bool = False
    """Whether it can strike any running job at any time, so that random runs draw it too."""
    edit: Callable[[Json], None] = _nothing
    """Changes the rendered JobSet before it is submitted, such as the environment of its pods."""


NAMESPACE = "research"
STEPS = 24
SAVE_EVERY = 8
BETWEEN_SAVES = SAVE_EVERY + 2
"""A step after the first save and before the second."""
STEADY = "steady"
"""Name of the job that no fault strikes."""

JOB: Mapping[str, Any] = {
    "training": {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS},
    "existing_run": "anew",
}
"""Settings of every job, which override those of the stack."""

SINGLES, PAIRS = "singles", "pairs"
"""Groups of three slices of one host and of two hosts, besides the group of the stack `local`, for jobs whose slices
restart one by one."""
_MORE_GROUPS = {
    name: {"generation": "v6e", "topology": topology, "count": 3, "capacity": "on-demand"}
    for name, topology in ((SINGLES, "1x1"), (PAIRS, "2x4"))
}
_MORE_CHIPS = {SINGLES: 3, PAIRS: 24}
"""All chips of each of these groups."""

GCS_SERVER = "fake-gcs-server"
"""Name of the sandbox's object store among its servers."""
BUCKET = "sandbox-local-checkpoints"
JOBSETS = names.JOBSETS.format(NAMESPACE)
"""API path of the jobs."""
_WORKLOADS = names.WORKLOADS.format(NAMESPACE)
_POLL_SECONDS = 0.2
END_SECONDS = 600
"""Seconds within which any job of the catalogue ends, with or without a fault."""
_GONE_SECONDS = 60


class NotInTime(RuntimeError):
    """Raised when a condition did not become true in time. The message lists the pods."""


@dataclass(frozen=True)
class Target:
    """The sandbox into which faults are injected, with the API of its cluster and the files of its jobs."""

    site: Site
    programs: Programs
    api: ApiServer

    def submit(self, fault: Fault) -> None:
        """Create the fault's job as the stack would, in its team's queue: the stack declares no queue for this job."""
        fault.before(self)
        config = _config(fault.name, fault.job)
        settings = parse({key.removeprefix("tpu-multislice:"): value for key, value in config.items()})
        (job,) = settings.jobs.values()
        manifest: Json = render(submission(settings, job, "trainer@sha256:" + 64 * "0"))
        manifest["metadata"]["labels"][names.QUEUE_LABEL] = NAMESPACE
        fault.edit(manifest)
        self.api.request("POST", JOBSETS, manifest)

    def jobset(self, name: str) -> Json:
        return self.api.find(f"{JOBSETS}/{name}") or {}

    def objects(self, path: str, selector: str = "") -> list[Json]:
        """Return the objects of the kind at this API path."""
        return self.api.request("GET", path, query={"labelSelector": selector} if selector else None)["items"]

    def pods(self, job: str) -> list[Json]:
        return self.objects(f"/api/v1/namespaces/{NAMESPACE}/pods", f"{names.JOBSET_LABEL}={job}")

    def pid(self, pod: str) -> int:
        """Process of the running pod whose name begins with `pod`. Raises ProcessLookupError unless there is one."""
        found = [pid for folder in self.site.pods.glob(f"{NAMESPACE}_{pod}-*") for pid in _processes(folder)]
        if len(found) != 1:
            raise ProcessLookupError(f"expected one process of {pod}, got {len(found)}")
        return found[0]

    def send(self, number: signal.Signals, job: str, *hosts: str) -> None:
        """Send a signal to hosts of the job, named `slice-S-H`, all at once. Raises like `pid`."""
        for pid in [self.pid(f"{job}-{host}") for host in hosts]:
            os.kill(pid, number)

    def server_pid(self, name: str) -> int:
        """Process of a server that the sandbox keeps up, such as `etcd`."""
        return int((self.site.servers / name).read_text())

    def folder(self, job: str) -> Path:
        return self.site.buckets / BUCKET / job

    def run_folder(self, job: str) -> Path:
        """Return the folder of the job's newest run; it does not exist before the first attempt."""
        current = self.folder(job) / "current.json"
        return self.folder(job) / "runs" / (json.loads(current.read_text())["run"] if current.exists() else "none")

    def history(self, job: str) -> History:
        """History of the job's newest run."""
        return read_history(epath.Path(self.run_folder(job)))

    def steps(self, job: str) -> list[Json]:
        """Return the recorded lines of all steps, attempt by attempt."""
        found = self.run_folder(job).glob("steps/*.jsonl")
        parts = sorted(found, key=lambda part: [int(number) for number in part.stem.split("-")])
        return [json.loads(line) for part in parts for line in part.read_text().splitlines()]

    def wait_for_step(self, job: str, step: int) -> None:
        """Block until `step` is done. Raises NotInTime after ten minutes."""
        self.wait(f"step {step} of {job}", lambda: any(line["step"] >= step for line in self.steps(job)), END_SECONDS)

    def wait_for_end(self, job: str, seconds: float = END_SECONDS) -> None:
        """Block until the JobSet is Completed or Failed. Raises NotInTime after `seconds`."""
        self.wait(f"the end of {job}", lambda: self.ended(job), seconds)

    def ended(self, job: str) -> bool:
        return "terminalState" in self.jobset(job).get("status", {})

    def runs(self, job: str) -> bool:
        """Return whether all hosts of the job's slices have a process."""
        parts = self.jobset(job).get("spec", {}).get("replicatedJobs", [])
        sizes = [each["replicas"] * each["template"]["spec"]["completions"] for each in parts]
        pods = self.site.pods.glob(f"{NAMESPACE}_{job}-slice-*")
        return sum(1 for pod in pods if _processes(pod)) == sum(sizes) > 0

    def remove(self, job: str) -> None:
        """Delete the job and wait until its pods are gone."""
        self.api.delete(f"{JOBSETS}/{job}", {"propagationPolicy": "Foreground"})
        self.wait(f"the pods of {job} to go", lambda: not self.pods(job) and not self.jobset(job), _GONE_SECONDS)

    def observed(self, job: str, struck: float) -> Observed:
        """Observe the job, which was struck at that time in seconds since the epoch."""
        batches = {int(line["step"]): int(line["batch"]) for line in self.steps(job)}
        seen = observe(self.jobset(job).get("status", {}), self.history(job), batches, struck)
        conditions, events, failures = self.conditions(job), self.events(job), self.failures(job)
        told = replace(seen, conditions=tuple(conditions), events=tuple(events), failures=tuple(failures))
        starts = self.history(job).starts
        ledgers = [ledger for start in starts for ledger in start.ledgers.values()]
        changes = [event for ledger in ledgers for event in ledger if event.name == "SlicesChanged"]
        if not changes:
            return told
        steps = [step for start in starts for step in start.steps]
        log = (self.site.logs / f"{GCS_SERVER}.log").read_text(errors="replace").splitlines()
        membership = observe_membership(changes, steps, struck, self._hosts_of_pods(job), reads_of_arrays(log, job))
        return replace(told, membership=membership)

    def _hosts_of_pods(self, job: str) -> list[str]:
        """Return the host `slice-S-H` of each pod that the job has had. Their logs outlive them."""
        found = (self.site.logs / "pods").glob(f"{NAMESPACE}_{job}-slice-*")
        return [name[1] for each in found if (name := re.search(r"(slice-[0-9]+-[0-9]+)-[^-_]+_", each.name))]

    def view(self, job: str) -> Json:
        """Return the newest view of a job whose slices restart one by one; an empty one before the first."""
        found = self.folder(job).glob("groups/*/views/*.json")
        newest = max(found, key=lambda path: int(path.stem), default=None)
        return json.loads(newest.read_text()) if newest else {"number": 0, "slices": [], "led_by": 0, "donors": []}

    def undisturbed(self, fault: Fault) -> Mapping[int, float]:
        """Return the losses by step of a job like the fault's that nothing strikes. The first call may run it."""
        name = STEADY
        if fault.job.get("slice_failure") == "continue":
            name = f"{STEADY}-{fault.job['slices']['group']}"
            if not self.folder(name).exists():
                self.submit(replace(fault, name=name, edit=_nothing, before=_nothing))
                self.wait_for_end(name)
        return self.observed(name, 0.0).losses

    def failures(self, job: str) -> list[Failure]:
        """Return failure records of the job's hosts, including attempts that opened no run."""
        uid = self.jobset(job).get("metadata", {}).get("uid", "none")
        return [record.failure for record in read_failures(epath.Path(self.folder(job)), [], run_ids=[uid])]

    def events(self, job: str) -> list[str]:
        """Return the messages of the events of the job's JobSet, Jobs and pods."""
        found = self.objects(f"/api/v1/namespaces/{NAMESPACE}/events")
        about = [each for each in found if re.match(rf"{job}(-slice-|$)", each["involvedObject"]["name"])]
        return [each["message"] for each in about]

    def conditions(self, job: str) -> list[str]:
        """Return the messages of the conditions of the job's JobSet and its Workload."""
        uid = self.jobset(job).get("metadata", {}).get("uid", "none")
        workloads = self.objects(_WORKLOADS, f"kueue.x-k8s.io/job-uid={uid}")
        conditions = [each.get("status", {}).get("conditions", ()) for each in (self.jobset(job), *workloads)]
        return [condition.get("message", "") for one in conditions for condition in one]

    def wait(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Block until `holds` returns true. Raises NotInTime after `seconds`."""

        def holds_now() -> bool:
            # The fault may consist in an API server that is down.
            with suppress(*UNREACHABLE):
                return holds()
            return False

        if not holds_within(seconds, holds_now, _POLL_SECONDS):
            pods: list[Json] = []
            with suppress(*UNREACHABLE):
                pods = self.objects(f"/api/v1/namespaces/{NAMESPACE}/pods")
            phases = [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in pods]
            raise NotInTime(f"expected {what} within {seconds:.0f} s; pods: {phases}")


@contextmanager
def open_target(root: Path) -> Generator[Target]:
    """Yield a target in a new sandbox in `root`, stopped afterwards. The job of its stack has ended without a fault."""
    site = create(root / "sandbox")
    found = builds.prepare(lambda _: None)
    daemon.start(site, lambda _: None)
    try:
        target = Target(site, found, administrator(site))
        stack_file = root / "Pulumi.local.yaml"
        stack_file.write_text(yaml.safe_dump({"config": _config(STEADY, {})}))
        Engine(site, found, stack_file).up(lambda _: None)
        target.wait_for_end(STEADY)
        yield target
    finally:
        daemon.stop(site)


def _config(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    config = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())["config"]
    config["tpu-multislice:slices"] |= _MORE_GROUPS
    config["tpu-multislice:cluster"]["ram_disk_gib"] = 1
    config["tpu-multislice:teams"][NAMESPACE]["quota"] |= _MORE_CHIPS
    training = {**JOB["training"], **job.get("training", {})}
    config["tpu-multislice:job"] |= {**JOB, **job, "training": training, "name": name}
    return config


def _processes(pod: Path) -> list[int]:
    """Processes of the pod with that folder; none after its end."""
    try:
        return [int(pid) for pid in (pod / "pid").read_text().split()]
    except FileNotFoundError:
        return []

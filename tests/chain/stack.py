"""A stack of the sandbox under test: its settings, its engine, its jobs and their files."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import yaml
from etils import epath
from pulumi.automation import EngineEvent

from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.stack import names
from multislice_run.worlds import World, Worlds
from sandbox import builds, daemon
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine, environment, project_folder
from sandbox.programs import Programs
from sandbox.servers import holds_within
from sandbox.site import Site, administrator, create
from tests.infra.recording import Values
from workloads.report.history import History, read_history

NAMESPACE = "research"
"""Namespace of the team whose job the stack `local` has."""
STEPS = 24
SAVE_EVERY = 8
JOB: Mapping[str, Any] = {
    "training": {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS},
    "existing_run": "new",
}
"""Settings of a short job, which override those of the stack `local`."""
JOBSETS = names.JOBSETS.format(NAMESPACE)
"""API path of the team's jobs."""
BUCKET = "sandbox-local-checkpoints"

_GROUPS = {
    "/api/v1": ("nodes", "pods", "namespaces", "configmaps", "events"),
    "/apis/batch/v1": ("jobs",),
    "/apis/apps/v1": ("deployments",),
    "/apis/networking.k8s.io/v1": ("networkpolicies",),
    "/apis/jobset.x-k8s.io/v1alpha2": ("jobsets",),
    "/apis/kueue.x-k8s.io/v1beta2": ("workloads", "clusterqueues", "cohorts", "resourceflavors", "admissionchecks"),
    "/apis/monitoring.googleapis.com/v1": ("podmonitorings", "clusterrules"),
}
_PATHS = {kind: f"{group}/{kind}" for group, kinds in _GROUPS.items() for kind in kinds}
"""Where the API server lists the objects of a kind in all namespaces."""

PATIENCE_SECONDS = 600
"""Far longer than anything takes here on the slowest machine: how fast it is belongs in benchmarks."""
_GONE_SECONDS = 60
_POLL_SECONDS = 0.2


class NotInTime(RuntimeError):
    """Raised when a condition did not become true in time."""


@dataclass(frozen=True)
class Chain:
    """A running sandbox."""

    site: Site
    programs: Programs
    folder: Path
    """For stack files."""

    def engine(self, **job: object) -> Engine:
        """The engine on `stack_file(**job)`."""
        return Engine(self.site, self.programs, self.stack_file(**job))

    def stack_file(self, **job: object) -> Path:
        """The local stack, with a short job changed by `job`."""
        content = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())
        content["config"]["tpu-multislice:job"] |= {**JOB, **job}
        path = self.folder / "Pulumi.local.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def engine_on(self, values: Values) -> Engine:
        """The engine on the stack `local` with these values by section."""
        return Engine(self.site, self.programs, self.written(values))

    def written(self, values: Values) -> Path:
        """The file of the stack `local` with these values by section."""
        path = self.folder / "Pulumi.local.yaml"
        config = {f"tpu-multislice:{section}": value for section, value in values.items()}
        path.write_text(yaml.safe_dump({"config": config}))
        return path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What `kubectl` prints; fails with what it complains about."""
        command = [str(self.programs.path("kubectl")), f"--kubeconfig={self.site.kubeconfig}", *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def pulumi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command of a user says and does, with the sandbox's state and programs."""
        command = [str(self.programs.path("pulumi")), *arguments, "--non-interactive"]
        variables = os.environ | environment(self.site)
        folder = project_folder(self.site)
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)

    @cached_property
    def api(self) -> ApiServer:
        """The API server as its administrator."""
        return administrator(self.site)

    def objects(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, such as `pods`, in all namespaces; those with `labels`, a selector."""
        return self.api.request("GET", _PATHS[kind], query={"labelSelector": labels} if labels else None)["items"]

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Pods of the job with that name."""
        return self.objects("pods", f"{names.JOBSET_LABEL}={job}")

    def jobset(self, name: str) -> dict[str, Any]:
        """The JobSet of that name in the team's namespace; empty if there is none."""
        return self.api.find(f"{JOBSETS}/{name}") or {}

    def identity(self, name: str) -> tuple[str, int, set[str]]:
        """The JobSet of that name, how often it was restarted, and its pods: the same as long as nobody touches it."""
        jobset = self.jobset(name)
        pods = {pod["metadata"]["uid"] for pod in self.pods(name)}
        return jobset["metadata"]["uid"], self.world(name).number, pods

    def ended(self, name: str) -> bool:
        return "terminalState" in self.jobset(name).get("status", {})

    def wait_for_end(self, name: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The JobSet's status once it is Completed or Failed."""
        self.wait(f"the end of {name}", lambda: self.ended(name), seconds)
        return self.jobset(name)["status"]

    def wait_for_step(self, name: str, step: int) -> None:
        """Block until the newest leader has reported `step`, which it does up to two seconds late."""
        self.wait(f"step {step} of {name}", lambda: any(line["step"] >= step for line in self.steps(name)))

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Block until `holds()`, while the API server may come and go. Raises NotInTime after `seconds`."""

        def holds_now() -> bool:
            with suppress(*UNREACHABLE):
                return holds()
            return False

        if not holds_within(seconds, holds_now, _POLL_SECONDS):
            raise NotInTime(f"expected {what} within {seconds:.0f} s\n{self._story()}")

    def job_folder(self, name: str) -> Path:
        """The job's folder in the bucket."""
        return self.site.buckets / BUCKET / name

    def run_folder(self, name: str) -> Path:
        """The folder of the job's newest run; it does not exist before the first attempt."""
        current = self.job_folder(name) / "current.json"
        return self.job_folder(name) / "runs" / (json.loads(current.read_text())["run"] if current.exists() else "none")

    def history(self, name: str) -> History:
        """History of the job's newest run."""
        return read_history(epath.Path(self.run_folder(name)))

    def steps(self, name: str) -> list[dict[str, Any]]:
        """The recorded lines of all steps of the newest run, attempt by attempt."""
        found = self.run_folder(name).glob("steps/*.jsonl")
        parts = sorted(found, key=lambda part: [int(number) for number in part.stem.split("-")])
        return [json.loads(line) for part in parts for line in part.read_text().splitlines()]

    def losses(self, name: str) -> dict[int, float]:
        """Losses by step of the job's newest run, from the lines of every start; they must agree where they overlap."""
        found: dict[int, float] = {}
        for line in self.steps(name):
            known = found.setdefault(line["step"], line["loss"])
            assert known == line["loss"], f"step {line['step']} was {known}, then {line['loss']}"
        return found

    def host_pid(self, pod: str) -> int:
        """Process of the running pod whose name starts with `pod`. Raises ProcessLookupError unless there is one."""
        found = [pid for folder in self.site.pods.glob(f"{NAMESPACE}_{pod}-*") for pid in _processes(folder)]
        if len(found) != 1:
            raise ProcessLookupError(f"expected one process of {pod}, got {len(found)}")
        return found[0]

    def trainer_pid(self, pod: str) -> int:
        """Trainer that the supervisor of this pod runs: a younger process waits for its attempt. Raises like
        `host_pid`."""
        children = psutil.Process(self.host_pid(pod)).children()
        if not children:
            raise ProcessLookupError(f"expected a trainer of {pod}, got none")
        return min(children, key=psutil.Process.create_time).pid

    def send(self, number: signal.Signals, job: str, *hosts: str) -> None:
        """Send a signal to the trainers of hosts of the job, named `slice-S-H`, all at once. Raises like `host_pid`."""
        for pid in [self.trainer_pid(f"{job}-{host}") for host in hosts]:
            os.kill(pid, number)

    def send_to_pods(self, number: signal.Signals, job: str, *hosts: str) -> None:
        """Send a signal to the first process of pods, as kubelet does, all at once. Raises like `host_pid`."""
        for pid in [self.host_pid(f"{job}-{host}") for host in hosts]:
            os.kill(pid, number)

    def world(self, job: str) -> World:
        """The newest attempt that the pods of a training job have agreed on."""
        found = Worlds(epath.Path(self.job_folder(job)), self.jobset(job)["metadata"]["uid"]).newest()
        assert found, f"no attempt of {job} has begun"
        return found

    def hosts_run(self, job: str) -> bool:
        """Whether all hosts of the job's slices have a process."""
        parts = self.jobset(job).get("spec", {}).get("replicatedJobs", [])
        sizes = [each["replicas"] * each["template"]["spec"]["completions"] for each in parts]
        pods = self.site.pods.glob(f"{NAMESPACE}_{job}-slice-*")
        return sum(1 for pod in pods if _processes(pod)) == sum(sizes) > 0

    def remove(self, job: str) -> None:
        """Delete the job and wait until its pods are gone."""
        self.api.delete(f"{JOBSETS}/{job}", {"propagationPolicy": "Foreground"})
        self.wait(f"the pods of {job} to go", lambda: not self.pods(job) and not self.jobset(job), _GONE_SECONDS)

    def log(self, pod: str) -> str:
        """The logs of the team's pods whose names start with `pod`."""
        logs = sorted((self.site.logs / "pods").glob(f"{NAMESPACE}_{pod}-*/*.log"))
        return "".join(log.read_text(errors="replace") for log in logs)

    def _story(self) -> str:
        """What kubectl and the logs of the team's pods say."""
        logs = (self.site.logs / "pods").glob(f"{NAMESPACE}_*/*.log")
        ends = [f"== {log}\n{log.read_text(errors='replace')[-1500:]}" for log in logs]
        listed = "the API server does not answer"
        with suppress(AssertionError, subprocess.TimeoutExpired):
            listed = self.kubectl("get", "jobset,workload,pods", "-A")
        return "\n".join([listed, *ends])


@contextmanager
def sandbox_in(folder: Path) -> Generator[Chain]:
    """A sandbox in a new folder, which is stopped when the block ends."""
    site, stacks = create(folder / "sandbox"), folder / "stacks"
    found = builds.prepare(ignore)
    stacks.mkdir(parents=True)
    daemon.start(site, ignore)
    try:
        yield Chain(site, found, stacks)
    finally:
        daemon.stop(site)


def wait_until(holds: Callable[[], bool], story: Callable[[], str]) -> None:
    """Poll `holds`; fail with `story` if it does not come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s\n{story()}"
        time.sleep(0.3)


def ignore(_: object) -> None:
    """Takes an engine event."""


def reviews(events: Iterable[EngineEvent]) -> list[str]:
    """What previews log of price, queue and chips."""
    told = [event.diagnostic_event for event in events if event.diagnostic_event]
    return [each.message for each in told if each.severity == "info" and each.message.startswith("review of ")]


class Operations:
    """What the engine does to which resource, in the order in which it is done."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        """(operation, resource) of all that is not left as it is."""
        self.ended: list[tuple[str, str]] = []

    def __call__(self, event: EngineEvent) -> None:
        for told, to in ((event.resource_pre_event, self.begun), (event.res_outputs_event, self.ended)):
            if told and told.metadata.op.value != "same" and not _is_component(told.metadata.type):
                to.append((told.metadata.op.value, told.metadata.urn.rpartition("::")[2]))

    @property
    def changes(self) -> set[tuple[str, str]]:
        """Once per operation and resource, however often and in whatever order."""
        return set(self.begun)


def _is_component(resource_type: str) -> bool:
    return ":infra:" in resource_type or resource_type.endswith((":Chart", ":Stack"))


def processes_of(site: Site) -> list[psutil.Process]:
    """Processes of this machine whose command names the sandbox's folder."""
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if str(site.root) in " ".join(process.info["cmdline"] or [])]


def _processes(pod: Path) -> list[int]:
    """Processes of the pod with that folder; none after its end."""
    try:
        return [int(pid) for pid in (pod / "pid").read_text().split()]
    except FileNotFoundError:
        return []

"""A stack of the sandbox under test: its settings, its engine, and what kubectl and the ledger say of it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import yaml
from pulumi.automation import EngineEvent

from chaos.target import JOB, JOBSETS, NAMESPACE, Target
from infra.kubernetes import ApiServer
from sandbox import builds, daemon
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine, environment, project_folder
from sandbox.programs import Programs
from sandbox.site import Site, administrator, create
from tests.infra.recording import Values

_GROUPS = {
    "/api/v1": ("nodes", "pods", "namespaces", "configmaps"),
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
        return self.target.objects(_PATHS[kind], labels)

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Pods of the job with that name."""
        return self.objects("pods", f"jobset.sigs.k8s.io/jobset-name={job}")

    def jobset(self, name: str) -> dict[str, Any]:
        return self.api.request("GET", f"{JOBSETS}/{name}")

    def identity(self, name: str) -> tuple[str, int, set[str]]:
        """The JobSet of that name, how often it was restarted, and its pods: the same as long as nobody touches it."""
        jobset = self.jobset(name)
        pods = {pod["metadata"]["uid"] for pod in self.pods(name)}
        return jobset["metadata"]["uid"], jobset["status"].get("restarts", 0), pods

    def wait_for_end(self, name: str) -> dict[str, Any]:
        """The JobSet's status once it is Completed or Failed."""
        wait_until(lambda: "terminalState" in self.jobset(name).get("status", {}), self._story(name))
        return self.jobset(name)["status"]

    def wait_for_step(self, name: str, step: int) -> None:
        """Block until the newest leader has reported `step`, which it does up to two seconds late."""
        wait_until(lambda: step in self.losses(name), self._story(name))

    def losses(self, name: str) -> dict[int, float]:
        """Losses by step of the job's newest run, from the lines of every start; they must agree where they overlap."""
        found: dict[int, float] = {}
        for part in sorted(self.run_folder(name).glob("steps/*.jsonl")):
            for line in map(json.loads, part.read_text().splitlines()):
                known = found.setdefault(line["step"], line["loss"])
                assert known == line["loss"], f"step {line['step']} was {known}, then {line['loss']}"
        return found

    @property
    def target(self) -> Target:
        """The same sandbox, as faults see it."""
        return Target(self.site, self.programs, self.api)

    def run_folder(self, name: str) -> Path:
        return self.target.run_folder(name)

    def host_pid(self, pod: str) -> int:
        """Process of the running pod whose name starts with `pod`."""
        return self.target.pid(pod)

    def _story(self, name: str) -> Callable[[], str]:
        def story() -> str:
            logs = "\n".join(
                f"== {log}\n{log.read_text(errors='replace')[-1500:]}"
                for log in (self.site.logs / "pods").glob(f"{NAMESPACE}_{name}-*/*.log")
            )
            return f"{self.kubectl('get', 'jobset,workload,pods', '-A')}\n{logs}"

        return story


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

"""A stack of the sandbox under test: its settings, its engine, and what kubectl and the ledger say of it."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from kubernetes import client, config
from pulumi.automation import EngineEvent

from chaos.field import JOB, NAMESPACE, Field
from sandbox.access import administrator
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.programs import Programs
from sandbox.site import Site
from tests.infra.recording import Values

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
        path = self.folder / "Pulumi.local.yaml"
        config = {f"tpu-multislice:{section}": value for section, value in values.items()}
        path.write_text(yaml.safe_dump({"config": config}))
        return Engine(self.site, self.programs, path)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What `kubectl` prints; fails with what it complains about."""
        command = [str(self.programs.path("kubectl")), f"--kubeconfig={self.site.kubeconfig}", *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def official_client(self) -> client.ApiClient:
        """The client that the program asks a cluster with."""
        settings: Any = client.Configuration()
        config.load_kube_config(str(self.site.kubeconfig), client_configuration=settings)
        return client.ApiClient(settings)

    def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", kind, "-A", "-o", "json", *arguments))["items"]

    def jobset(self, name: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "jobset", name, "-n", NAMESPACE, "-o", "json"))

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
    def field(self) -> Field:
        """The same sandbox, as faults see it."""
        return Field(self.site, self.programs, administrator(self.site))

    def run_folder(self, name: str) -> Path:
        return self.field.run_folder(name)

    def host_pid(self, pod: str) -> int:
        """Process of the running pod whose name starts with `pod`."""
        return self.field.pid(pod)

    def _story(self, name: str) -> Callable[[], str]:
        def story() -> str:
            logs = "\n".join(
                f"== {log}\n{log.read_text(errors='replace')[-1500:]}"
                for log in (self.site.logs / "pods").glob(f"{NAMESPACE}_{name}-*/*.log")
            )
            return f"{self.kubectl('get', 'jobset,workload,pods', '-A')}\n{logs}"

        return story


def wait_until(holds: Callable[[], bool], story: Callable[[], str]) -> None:
    """Poll `holds`; fail with `story` if it does not come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s\n{story()}"
        time.sleep(0.3)


def ignore(_: object) -> None:
    """Takes an engine event."""


class Reviews:
    """What previews log of price, queue and chips."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, event: EngineEvent) -> None:
        told = event.diagnostic_event
        if told and told.severity == "info" and told.message.startswith("review of "):
            self.told.append(told.message)


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

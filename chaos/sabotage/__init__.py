"""A host of a job that misbehaves from within, with no hook in the trainer for it.

Owns the description of what goes wrong, which a fault puts into the pods' environment and which their Python reads
back as it starts. How it goes wrong there is the business of `chaos.sabotage.deeds`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

VARIABLE = "SABOTAGE"
"""Environment variable of the pods with a list of descriptions as JSON."""

NODE_RECORD = "bad-node"
"""File below the job's storage path with the name of the node that `Sabotage.node_of` speaks of."""

Deed = Literal["delay", "raise", "exhaust", "not-finite", "flip", "misproduct", "kill", "stop"]
"""What the call does when its time has come:

    delay       nothing else
    raise       raises a ValueError
    exhaust     asks a device for more memory than there is
    not-finite  works on weights of which the host's own are not finite, and gives back the right ones
    flip        gives back weights of which one bit is another one
    misproduct  gives back wrong products
    kill        the kernel kills the process
    stop        the process stands still
"""


@dataclass(frozen=True)
class Sabotage:
    """One function that misbehaves on some hosts of one start."""

    deed: Deed
    function: str
    """`module:function` or `module:Class.function`."""
    hosts: tuple[str, ...]
    """Named `slice-S-H`."""
    calls: tuple[int, int]
    """The first and the last call that misbehave, counted from 1 in each process."""
    about: str = ""
    """Only calls with this text in their arguments count."""
    start: int | None = 0
    """Restarts of the job before that start; None: any start."""
    node_of: str = ""
    """The host whose first node alone makes calls misbehave, in whatever start; empty: any node does."""
    seconds: float = 0.0
    """How long the call waits first."""

    def concerns(self, environment: Mapping[str, str]) -> bool:
        """Whether the process with this environment is such a host in that start."""
        attempt = environment.get("JOB_RESTART_ATTEMPT")
        return own_name(environment) in self.hosts and (self.start is None or attempt == str(self.start))


def own_name(environment: Mapping[str, str]) -> str:
    """`slice-S-H` of the process with this environment."""
    return f"slice-{environment.get('MEGASCALE_SLICE_ID')}-{environment.get('TPU_WORKER_ID')}"


def described(environment: Mapping[str, str]) -> list[Sabotage]:
    """What goes wrong in the process with this environment."""
    found = [_parsed(facts) for facts in json.loads(environment[VARIABLE])]
    return [each for each in found if each.concerns(environment)]


def _parsed(facts: dict[str, Any]) -> Sabotage:
    values: dict[str, Any] = {**facts, "hosts": tuple(facts["hosts"]), "calls": tuple(facts["calls"])}
    return Sabotage(**values)


def sabotaged(*what: Sabotage) -> Callable[[dict[str, Any]], None]:
    """For `Fault.edit`: pods whose Python reads `sitecustomize` of this folder before all else."""
    folder = Path(__file__).parent
    return with_variables(
        {
            VARIABLE: json.dumps([asdict(each) for each in what]),
            "PYTHONPATH": f"{folder}:{folder.parents[1]}",
        }
    )


def with_variables(variables: Mapping[str, str]) -> Callable[[dict[str, Any]], None]:
    """For `Fault.edit`: pods with these environment variables."""

    def edit(manifest: dict[str, Any]) -> None:
        for job in manifest["spec"]["replicatedJobs"]:
            for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                others = [variable for variable in container["env"] if variable["name"] not in variables]
                container["env"] = others + [{"name": name, "value": value} for name, value in variables.items()]

    return edit

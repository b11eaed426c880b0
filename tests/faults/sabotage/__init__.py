"""Makes a host of a job misbehave from within, without a hook in the trainer.

A fault puts the description of the misbehaviour into the pods' environment. Their Python reads it at start-up and wraps
the functions when their module is imported. This module imports nothing heavy, because it runs before the trainer.
"""

import functools
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

VARIABLE = "SABOTAGE"
"""Environment variable of the pods with a JSON list of sabotages."""

NODE_RECORD = "bad-node"
"""File in the job's storage path with the name of the node that `Sabotage.node_of` describes."""

Deed = Literal["delay", "raise", "exhaust", "not-finite", "flip", "misproduct", "kill", "stop"]
"""What a sabotaged call does:

    delay       nothing else
    raise       raises a ValueError
    exhaust     asks a device for more memory than it has
    not-finite  uses weights whose part on this host is not finite, and returns the right weights
    flip        returns weights with one flipped bit
    misproduct  returns wrong products
    kill        the kernel kills the process
    stop        the process stops
"""


@dataclass(frozen=True)
class Sabotage:
    """One function that misbehaves on some hosts in one attempt."""

    deed: Deed
    function: str
    """`module:function` or `module:Class.function`."""
    hosts: tuple[str, ...]
    """Named `slice-S-H`."""
    calls: tuple[int, int]
    """Numbers of the first and the last call that misbehave, counted from 1 in each process."""
    about: str = ""
    """Text that the arguments of a call must contain for the call to count."""
    start: int | None = 0
    """Number of restarts before the attempt; None for any attempt."""
    node_of: str = ""
    """Host whose first node makes calls misbehave, in any attempt. Empty if calls misbehave on any node."""
    seconds: float = 0.0
    """Delay in seconds before the action."""


def own_name(environment: Mapping[str, str]) -> str:
    """`slice-S-H` of the process with this environment."""
    return f"slice-{environment.get('MEGASCALE_SLICE_ID')}-{environment.get('TPU_WORKER_ID')}"


def add_sabotages(*what: Sabotage) -> Callable[[dict[str, Any]], None]:
    """Edit for `Fault.edit`: pods whose Python first imports `sitecustomize` of this folder."""
    folder, described = Path(__file__).parent, json.dumps([asdict(each) for each in what])
    return with_variables({VARIABLE: described, "PYTHONPATH": f"{folder}:{folder.parents[2]}"})


def with_variables(variables: Mapping[str, str]) -> Callable[[dict[str, Any]], None]:
    """Edit for `Fault.edit`: pods with these environment variables."""

    def edit(manifest: dict[str, Any]) -> None:
        for job in manifest["spec"]["replicatedJobs"]:
            for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                others = [variable for variable in container["env"] if variable["name"] not in variables]
                container["env"] = others + [{"name": name, "value": value} for name, value in variables.items()]

    return edit


_MORE_BYTES_THAN_THERE_ARE = 1 << 50
_A_BIT = 1 << 20
"""A bit of a float32's mantissa."""


def install(environment: Mapping[str, str]) -> None:
    """Wrap the functions that the environment describes for this host when they are imported."""
    found = [Sabotage(**facts) for facts in json.loads(environment[VARIABLE])]
    if what := [each for each in found if own_name(environment) in each.hosts]:
        sys.meta_path.insert(0, _Finder(what))


class _Finder(MetaPathFinder):
    def __init__(self, what: list[Sabotage]):
        self._what = what

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        here = [each for each in self._what if each.function.partition(":")[0] == fullname]
        spec = PathFinder.find_spec(fullname, path, target) if here else None
        if spec and spec.origin:
            spec.loader = _Loader(fullname, spec.origin, here)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, what: list[Sabotage]):
        super().__init__(fullname, path)
        self._what = what

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for each in self._what:
            *owners, name = each.function.partition(":")[2].split(".")
            owner = functools.reduce(getattr, owners, module)
            setattr(owner, name, wrap(getattr(owner, name), each))


def wrap(function: Callable[..., Any], what: Sabotage) -> Callable[..., Any]:
    """Return the function, changed to misbehave in the calls that `what` describes."""
    count = _Count(what)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not count.due(arguments, named):
            return function(*arguments, **named)
        time.sleep(what.seconds)
        match what.deed:
            case "not-finite":
                return _on_weights_that_are_not_finite(function, *arguments)
            case "flip":
                return _with_a_flipped_bit(*function(*arguments, **named))
            case "misproduct":
                return ((name, product + 1) for name, product in function(*arguments, **named))
            case _:
                _do(what)
                return function(*arguments, **named)

    @functools.wraps(function)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        # This runs when it is awaited, possibly in a separate thread.
        if count.due(arguments, named):
            time.sleep(what.seconds)
            _do(what)
        return await function(*arguments, **named)

    return awaited if inspect.iscoroutinefunction(function) else call


@dataclass
class _Count:
    what: Sabotage
    calls: int = 0

    def due(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Return whether this call misbehaves. A process may have begun before its attempt, so that is asked now."""
        if self.what.start not in (None, int(os.environ.get("JOB_RESTART_ATTEMPT", "0"))):
            return False
        if self.what.about and self.what.about not in repr((arguments, named)):
            return False
        self.calls += 1
        first, last = self.what.calls
        return first <= self.calls <= last and (not self.what.node_of or _on_node_of(self.what.node_of, os.environ))


def _on_node_of(host: str, environment: Mapping[str, str]) -> bool:
    """Return whether this process runs on the node on which that host first ran, which the host records."""
    from etils import epath

    from workloads.spec import JOB_SPEC_VARIABLE, NODE_VARIABLE

    record = epath.Path(json.loads(environment[JOB_SPEC_VARIABLE])["storage"]["path"]) / NODE_RECORD
    node = environment[NODE_VARIABLE]
    if own_name(environment) == host and not record.exists():
        record.write_text(node)
    return record.exists() and record.read_text() == node


def _do(what: Sabotage) -> None:
    match what.deed:
        case "raise":
            raise ValueError("no such row")
        case "exhaust":
            import jax.numpy as jnp

            jnp.zeros(_MORE_BYTES_THAN_THERE_ARE, jnp.uint8).block_until_ready()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case _:
            pass


def _on_weights_that_are_not_finite(step: Callable[..., Any], program: Any, state: Any, batch: Any) -> Any:
    import jax
    import numpy as np

    leaves, structure = jax.tree.flatten(state.parameters)
    shards = [
        jax.device_put(np.full(shard.data.shape, np.nan, shard.data.dtype), shard.device)
        for shard in leaves[0].addressable_shards
    ]
    poisoned = jax.make_array_from_single_device_arrays(leaves[0].shape, leaves[0].sharding, shards)
    bad = replace(state, parameters=structure.unflatten([poisoned, *leaves[1:]]))
    after, result = step(program, bad, batch)
    # The first leaf was not donated with the others, and a skipped step leaves all weights as they are.
    rest = jax.tree.leaves(after.parameters)[1:]
    return replace(after, parameters=structure.unflatten([leaves[0], *rest])), result


def _with_a_flipped_bit(after: Any, result: Any) -> Any:
    import jax
    import numpy as np

    leaves, structure = jax.tree.flatten(after.parameters)
    shards = leaves[0].addressable_shards
    parts = [np.array(shard.data) for shard in shards]
    parts[0].reshape(-1).view(np.uint32)[0] ^= _A_BIT
    placed = [jax.device_put(part, shard.device) for part, shard in zip(parts, shards, strict=True)]
    flipped = jax.make_array_from_single_device_arrays(leaves[0].shape, leaves[0].sharding, placed)
    return replace(after, parameters=structure.unflatten([flipped, *leaves[1:]])), result

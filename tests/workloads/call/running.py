"""Calls in real host processes without a cluster: packed as by a caller, run as by the image."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from cli.hosts import Hosts, start_program
from multislice.call import filter_lines
from multislice.errors import Outcome, host_failure, read_outcome
from multislice.packing import Project, pack
from tests.checkout import ROOT
from workloads.call.folder import CallFolder, Seals, new_keys
from workloads.call.host import head_of
from workloads.call.parcel import Parcel
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec, SliceSpec

ONE_HOST = SliceSpec.of_cpu(count=1, hosts=1, chips_per_host=2)
TWO_SLICES = SliceSpec.of_cpu(count=2, hosts=1, chips_per_host=2)
SECONDS = 600
PRIVATE_KEY, PUBLIC_KEY = new_keys()


@dataclass(frozen=True)
class Called:
    """What became of a call."""

    codes: Sequence[int]
    """Exit codes of the processes."""
    outcome: Outcome | None
    logs: Sequence[str]
    """Full logs of the processes."""
    printed: Sequence[str]
    """Output of the function on the leader."""
    failure: str
    """What the host that failed first has recorded."""

    def result(self) -> Any:
        """Return the function's value on the leader, or raise its exception."""
        assert self.outcome
        return self.outcome.result()


def written(folder: Path, call: str, function: str, parts: Mapping[str, bytes], **changes: Any) -> CallSpec:
    """Write a call to `folder`, and return its specification with some settings replaced."""
    parcel = Parcel.of(call, function, parts)
    parcel.write(CallFolder.at(str(folder)))
    described = {"id": call, "folder": str(folder), "manifest_sha256": parcel.sha256, "public_key": PUBLIC_KEY}
    limits = {"start_minutes": 3, "check_slices": False, "max_hours": 1, "hang_minutes": 10, "return_minutes": 10}
    return CallSpec.model_validate(described | limits | {"slices": ONE_HOST} | changes)


def submitted(
    folder: Path, function: Callable[..., Any], *arguments: Any, ships: Sequence[Path] = (), **changes: Any
) -> CallSpec:
    """Write a call to `folder`, which waits for its hosts."""
    (packed,) = pack(function, [(arguments, {})], Project(ships))
    return written(folder, "call-1", packed.function, packed.parts, **changes)


@contextmanager
def hosts_of(spec: CallSpec, logs: Path, environment: Mapping[str, str] | None = None) -> Generator[Hosts]:
    """Run the host processes of a call, by Pathways its head, and kill them if they take too long."""
    slices = head_of(spec.slices) if spec.backend == "pathways" else spec.slices
    call = {CALL_SPEC_VARIABLE: spec.model_dump_json(), CALL_KEY_VARIABLE: PRIVATE_KEY}
    with start_program("workloads.call", slices, "run-1", 0, logs, {**call, **(environment or {})}) as hosts:
        deadline = Timer(SECONDS, hosts.stop, kwargs={"grace_seconds": 0})
        deadline.start()
        try:
            yield hosts
        finally:
            deadline.cancel()


def carried_out(spec: CallSpec, logs: Path, environment: Mapping[str, str] | None = None) -> Called:
    """Run all hosts to their end."""
    with hosts_of(spec, logs, environment) as hosts:
        codes = [host.process.wait() for host in hosts.all]
        texts = [host.log.read_text(errors="replace") for host in hosts.all]
    print(*texts, sep="\n=====\n")
    folder = CallFolder.at(spec.folder)
    printed = list(filter_lines(spec.id, texts[0].splitlines()))
    return Called(codes, read_outcome(Seals.of(spec, folder)), texts, printed, host_failure(folder) or "")


def without_proxy(folder: Path) -> dict[str, str]:
    """Stand in for Google's package, whose proxy does not run here: JAX keeps the CPU devices of the head."""
    folder.mkdir()
    (folder / "pathwaysutils.py").write_text("def initialize(): pass\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}"}

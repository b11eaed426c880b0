"""Runs one host's process of a call: check, join, call, report, end.

The leader's value is returned only after the function has returned on all hosts, so the leader's success hides no
failure of another host.
"""

import json
import os
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

import jax
from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Failure
from multislice_run.sigterm import end_on_sigterm
from multislice_run.standstill import Standstill
from workloads.call.folder import OUTPUT, RETURNED, CallFolder, Seals
from workloads.call.function import (
    Function,
    KerasOnAllHosts,
    own_traceback,
    pack_exception,
    pack_result,
    presentable,
)
from workloads.call.parcel import read_parcel
from workloads.progress import FunctionBegins, FunctionEnded
from workloads.spec import CallSpec, ExitCode, SliceSpec
from workloads.training import slice_check
from workloads.training.check_host import check_devices
from workloads.training.failures import InvalidSpec, NoDevices, is_peer_lost
from workloads.training.joining import HostProcess, hang
from workloads.training.runtime import Expectation, Processes
from workloads.training.watchdog import Watchdog

_RETURNED_KEY, _TAKEN_KEY = "returned", "taken"
_FUNCTION, _RETURNED_ON = "the function", ", which has returned on "
_SAME_ORDER = (
    "every host must run the same collectives, as same_order in examples/rules.py, and work of a single host must come"
    " before a collective of all hosts"
)
_MINUTES_PER_HOUR = 60
_LATE_HOST_FAILS_MINUTES = 0.1
_LEFTOVER_SECONDS = 60.0
_LEADER_POLL_SECONDS, _POLL_SECONDS = 0.05, 0.25
_HEAD_HOST = "head-0-0"
"""Name of the head of a call by Pathways within its job."""


@dataclass(frozen=True)
class _Caller:
    """One host of the call after it has joined the others."""

    spec: CallSpec
    host: HostProcess
    seals: Seals


def run_host(spec: CallSpec, private_key: str, start: AttemptFacts, environment: Mapping[str, str]) -> None:
    """Call the function. On an error, end the process with its exit code."""
    folder = CallFolder.at(spec.folder)
    with HostProcess(epath.Path(spec.folder), start, environment) as host:
        try:
            parts = read_parcel(spec, folder)[1]
        except ValueError as fault:
            raise InvalidSpec(str(fault)) from None
        by_pathways = spec.backend == "pathways"
        processes = host.join(head_of(spec.slices) if by_pathways else spec.slices, spec.start_minutes)
        # JAX has replaced the handler, and its own would wait for all hosts.
        end_on_sigterm()
        with Watchdog(processes, host.ending, _too_late, _Looks(spec, host, start).look):
            if by_pathways:
                connect_pathways(spec, processes)
            else:
                size = slice_check.QUICK_SIZE if spec.check_slices else None
                check_devices(spec.slices, host.position, processes, environment, size)
            processes.deadline.expect(_FUNCTION, _MINUTES_PER_HOUR * spec.max_hours)
            _call(_Caller(spec, host, Seals.of(spec, folder, private_key)), parts)
    # Threads that the function left must not hold the chips forever.
    timer = threading.Timer(_LEFTOVER_SECONDS, os._exit, [ExitCode.DONE])
    timer.daemon = True
    timer.start()


class _Looks:
    """What is looked at during the call, once a second: whether it hangs, and on which hosts the function has returned.

    A host that waits in a collective for one of them would wait forever, so all must return soon after the first one.
    """

    def __init__(self, spec: CallSpec, host: HostProcess, start: AttemptFacts):
        self._spec, self._processes = spec, host.processes
        self._first = self._expected = ""
        self._standstill = None
        if spec.hang_minutes is not None and host.processes.count > 1:
            self._standstill = Standstill(host.storage, start, host.position, spec.hang_minutes)

    def look(self) -> str | None:
        """Set the deadline for the rest of the call once the function has returned on a host. Return the cause if the
        call hangs."""
        # The leader holds the list. If it is gone, JAX ends this process.
        with suppress(jax.errors.JaxRuntimeError):
            if returned := {int(index) for index in self._processes.read_all(_RETURNED_KEY)}:
                self._first = self._first or _host_name(self._spec, min(returned))
                what, minutes = self._due(returned)
                if what != self._expected:
                    self._expected = what
                    self._processes.deadline.expect(what, minutes)
        cause = self._standstill and self._standstill.look()
        return cause and f"{cause}; {_SAME_ORDER}; raise hang_minutes if a single call into JAX takes longer"

    def _due(self, returned: set[int]) -> tuple[str, float]:
        minutes = self._spec.return_minutes
        if len(returned) == self._processes.count:
            return "the writing of the result", minutes
        if self._processes.index in returned:
            # The late host reports where it is waiting, so it has to fail first.
            return "the function on the other hosts", minutes + _LATE_HOST_FAILS_MINUTES
        return f"the function{_RETURNED_ON}{self._first},", minutes


def _too_late(missed: Expectation) -> str:
    if missed.what == _FUNCTION:
        return f"{hang(missed)}; raise max_hours if it needs longer"
    if _RETURNED_ON in missed.what:
        return f"{hang(missed)}; {_SAME_ORDER}"
    return hang(missed)


def _host_name(spec: CallSpec, process: int) -> str:
    if spec.backend == "pathways":
        return _HEAD_HOST
    slice_index, worker = divmod(process, spec.slices.hosts)
    return f"slice-{slice_index}-{worker}"


def _call(caller: _Caller, parts: Mapping[str, bytes]) -> None:
    print(FunctionBegins(caller.spec.id).line(), flush=True)
    if caller.host.processes.count > 1:
        sys.meta_path.insert(0, KerasOnAllHosts(caller.spec.id))
    try:
        value = Function.unpack(parts, f"{caller.spec.folder}/{OUTPUT}")()
        result = pack_result(value) if caller.host.processes.leads else b""
    except BaseException as raised:  # noqa: BLE001 - functions raise what they like, SystemExit among it
        error = presentable(raised)
        if is_peer_lost(error):
            raise
        _fail(caller, error)
    _end_of_function(caller)
    _hand_over(caller, result)


def _end_of_function(caller: _Caller) -> None:
    """Print the line after which the output is no longer the function's."""
    sys.stdout.flush()
    sys.stderr.flush()
    print(FunctionEnded(caller.spec.id).line(), flush=True)


def _hand_over(caller: _Caller, result: bytes) -> None:
    """Write the leader's result after all hosts have returned. The other hosts wait until it is written."""
    processes = caller.host.processes
    processes.put(_RETURNED_KEY, str(processes.index))
    if processes.leads:
        while processes.count > 1 and len(processes.read_all(_RETURNED_KEY)) < processes.count:
            time.sleep(_LEADER_POLL_SECONDS)
        caller.seals.write(RETURNED, result)
        processes.put(_TAKEN_KEY, "")
    while processes.count > 1 and not processes.read_all(_TAKEN_KEY):
        time.sleep(_POLL_SECONDS)


def _fail(caller: _Caller, error: BaseException) -> NoReturn:
    _end_of_function(caller)
    processes, exception = caller.host.processes, pack_exception(error)
    # The calling machine raises the exception from this record.
    record = {
        "host": _host_name(caller.spec, processes.index),
        "time": time.time(),
        "type": type(error).__name__,
        "message": str(error),
        "traceback": own_traceback(error),
        "exception": None if exception is None else b64encode(exception).decode(),
    }
    caller.seals.write_raised(processes.index, json.dumps(record).encode())
    cause = type(error).__name__ + (f": {error}" if str(error) else "")
    failure = Failure(cause, caller.host.position.host, ExitCode.FUNCTION_RAISED, time.time(), own_traceback(error))
    caller.host.ending.fail(failure, processes)


def head_of(slices: SliceSpec) -> SliceSpec:
    """Return the head's own view of the slices: one process, which has the devices of all hosts."""
    return slices.model_copy(
        update={"count": 1, "hosts": 1, "chips_per_host": slices.total_hosts * slices.chips_per_host}
    )


def connect_pathways(spec: CallSpec, processes: Processes) -> None:
    """Connect JAX with the proxy of Pathways and wait until the devices of all hosts are there.

    Raises:
        InvalidSpec: the image has no pathwaysutils.
        NoDevices: the proxy does not answer, or has other devices than those of the slices.
    """
    processes.deadline.expect("the connection to Pathways", spec.start_minutes)
    try:
        # Not at the top: only the head of Pathways needs it.
        utils: Any = import_module("pathwaysutils")
    except ImportError as error:
        raise InvalidSpec(
            f"backend='pathways' needs the package pathwaysutils in the image, which cannot be imported: {error}; build"
            " the stack's image from requirements/image.txt, or leave out backend="
        ) from None
    utils.initialize()
    try:
        found = len(jax.devices())
    except RuntimeError as error:
        raise NoDevices(
            f"the proxy of Pathways gives no devices ({str(error).splitlines()[0]}); compare the versions of JAX of the"
            " images in functions.pathways with that of the stack's image, and see the logs of the head's containers"
        ) from error
    if found != spec.slices.devices:
        raise NoDevices(f"expected the {spec.slices.devices} devices of all slices from Pathways, got {found}")
    print(f"the head has the {found} devices of {spec.slices.total_hosts} hosts by Pathways", flush=True)

"""Submits a call: chooses its name, writes its parts to the bucket and creates its JobSet. Also finds it by name."""

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infra.cluster.kubernetes import FORBIDDEN, UNREACHABLE, ApiError
from infra.stack.job_objects import CallJob, call_jobset, call_secret, call_spec_of
from infra.stack.names import JOBSETS, SECRETS
from infra.stack.settings.jobs import HOURS_PER_YEAR, Priority
from multislice.call import Call
from multislice.connection import StackConnection, connect
from multislice.errors import BucketFailed, CallError, CallGone, NoSuchStack, Refused, bucket, cluster
from multislice.packing import Packed
from multislice_run.standstill import HANG_MINUTES
from workloads.call.folder import new_keys
from workloads.call.parcel import Parcel
from workloads.spec import Backend, CallSpec

START_MINUTES = 15.0
"""Time limit for the start of all hosts, because slices may come up minutes apart."""
RETURN_MINUTES = 10.0
"""Time limit for the first host to write a result after the others have returned."""
DEFAULT_MAX_HOURS = 24.0
"""Default time limit of a function in hours, so that no call uses chips without a limit."""
MAX_CALL_HOURS = HOURS_PER_YEAR - 1
"""Longest `max_hours` of a call: that of a job, less an hour for the start."""
_NAME_CHARACTERS = 12
_NAME_END_BYTES = 4
_SERVER_FAULT = 500
"""Statuses from this number mean that the API server failed, perhaps after it had handled the request."""


@dataclass(frozen=True)
class CallRequest:
    """Request for slices of a stack."""

    slices: str | None
    """Name of the slice group. None: the group of `accelerator`."""
    count: int
    team: str | None
    """Name of the team. None: the stack's only team."""
    priority: Priority
    max_hours: float
    """Longest run time of the function in hours."""
    check_slices: bool
    """Whether the hosts check their devices before the function begins."""
    accelerator: str | None = None
    """Google's name of a slice, such as `v6e-16`, instead of the name of the group."""
    backend: Backend = "direct"
    hang_minutes: float | None = HANG_MINUTES
    """Time in minutes after which the call ends if no host has moved in it. None: never."""

    def errors(self) -> Iterator[str]:
        """Yield what is wrong with its slices, limits and checks on any stack, such as values of another type."""
        if (self.slices is None) == (self.accelerator is None):
            both = f"slices {self.slices!r} and accelerator {self.accelerator!r}"
            got = "neither" if self.slices is None else both
            yield f"expected either slices, the name of a slice group, or accelerator, such as 'v6e-16', got {got}"
        if not isinstance(self.count, int) or self.count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"count must be a number of slices of at least 1, got {self.count!r}"
        if not isinstance(self.max_hours, int | float) or not 0 < self.max_hours <= MAX_CALL_HOURS:  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"max_hours must be a number above 0 and at most {MAX_CALL_HOURS}, got {self.max_hours!r}"
        minutes = self.hang_minutes
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"hang_minutes must be a number above 0 or None, got {minutes!r}"
        if self.backend == "pathways" and self.check_slices:
            yield "check_slices must be left out with backend='pathways', whose servers hold the chips"


def submit(packed: Packed, request: CallRequest, connection: StackConnection) -> Call:
    """Submit a call. After an error or an interruption, everything created so far is removed.

    Raises:
        Refused: The stack or its API server refuses the call.
        NoSuchStack: The API server cannot be reached.
        BucketFailed: The files cannot be written to the bucket.
    """
    group = request.slices or connection.group_of(request.accelerator or "")
    connection.require(group, request.count)
    if request.backend == "pathways":
        connection.require_pathways(group)
    team = connection.team(request.team)
    name, namespace = call_name(packed.function), connection.settings.namespaces[team]
    parcel = Parcel.of(name, packed.function, packed.parts)
    private_key, public_key = new_keys()
    spec = CallSpec(
        id=name,
        folder=connection.url(namespace, name),
        manifest_sha256=parcel.sha256,
        public_key=public_key,
        slices=connection.settings.slices_of(group, request.count),
        backend=request.backend,
        start_minutes=START_MINUTES,
        check_slices=request.check_slices,
        max_hours=request.max_hours,
        hang_minutes=request.hang_minutes,
        return_minutes=RETURN_MINUTES,
    )
    manifest = call_jobset(CallJob(spec, packed.function, team, group, request.priority), connection.settings)
    call = Call(name, namespace, connection, spec)
    try:
        with bucket(connection.settings.bucket):
            parcel.write(call.files)
    except BaseException:
        _remove_files(call)
        raise
    _create(manifest, private_key, call)
    return call


def call_name(function: str) -> str:
    """Return a unique name for a call that is valid for a JobSet."""
    words = re.sub(r"[^a-z0-9]+", "-", function.lower()).strip("-")[:_NAME_CHARACTERS].strip("-")
    begins = words if words[:1].isalpha() else f"f-{words}".strip("-")
    return f"{begins}-{secrets.token_hex(_NAME_END_BYTES)}"


def is_call_name(name: str) -> bool:
    """Return whether `name` has the form of the names that `call_name` returns."""
    return re.fullmatch(rf"[a-z][a-z0-9-]*-[0-9a-f]{{{2 * _NAME_END_BYTES}}}", name) is not None


def _create(manifest: dict[str, Any], private_key: str, call: Call) -> None:
    stack, api = call.connection.stack, call.connection.api
    made: Any = None
    try:
        made = api.request("POST", JOBSETS.format(call.namespace), manifest)
        # The Secret needs the JobSet's uid, so that it is deleted with the JobSet. Pods wait for the Secret.
        api.request("POST", SECRETS.format(call.namespace), call_secret(made, private_key))
    except ApiError as error:
        _undo(call) if made or error.status >= _SERVER_FAULT else _remove_files(call)
        raise Refused(
            f"stack {stack} refuses a call in namespace {call.namespace}: {error}; if you are not a member of that"
            " team, pass team="
        ) from None
    except UNREACHABLE as error:
        left = _undo(call)
        raise NoSuchStack(f"the cluster of stack {stack} cannot be reached: {error}{left}") from None
    except BaseException as interruption:
        if left := _undo(call):
            interruption.add_note(left)
        raise


def _undo(call: Call) -> str:
    """Remove a call that the API server may or may not have. Return a text about what may remain."""
    # Remove the files first, because any hosts of the call end at once without them.
    _remove_files(call)
    try:
        call.cancel()
    except CallError:
        return f"\ncall {call.id} may still exist; it will end as soon as it starts, because its files were removed"
    return ""


def _remove_files(call: Call) -> None:
    with suppress(BucketFailed), bucket(call.connection.settings.bucket):
        call.files.remove()


def attach(call: str, *, stack: str, team: str | None = None, sandbox: str | Path | None = None) -> Call:
    """Return a call that was submitted before. This works on any machine that can reach the stack.

    Args:
        call: `id` of the call.
        stack: Name of the stack that runs it.
        team: Team of the call. Default: the only team whose namespace you may read. A JobSet has the place of its
            result and the key that seals it, so a JobSet of another team must not be used by mistake.
        sandbox: Folder of the sandbox that has the stack. Default: your own Pulumi has it.

    Raises:
        multislice.Refused: The team does not exist, or is needed.
        multislice.CallGone: The team has no such call.
        multislice.NoSuchStack: The stack cannot be reached.
    """
    return find_call(call, connect(stack, sandbox), team)


def forget(call: str, *, stack: str, team: str | None = None, sandbox: str | Path | None = None) -> None:
    """Cancel a call and remove all its files, even if the call no longer exists.

    The arguments are those of `attach`.

    Raises:
        multislice.Refused: The name is not valid, or the team does not exist or is needed.
        multislice.NoSuchStack: The stack cannot be reached.
        multislice.BucketFailed: The bucket cannot be written.
    """
    if not is_call_name(call):
        raise Refused(f"expected the name of a call, such as train-1f2e3d4c, got {call!r}; nothing was removed")
    found = connect(stack, sandbox)
    try:
        find_call(call, found, team).forget()
    except CallGone:
        seen, _ = _seen(found, call, team)
        with bucket(found.settings.bucket):
            for namespace in seen:
                found.folder(namespace, call).remove()


def find_call(call: str, stack: StackConnection, team: str | None = None) -> Call:
    """Return a call on a stack. Raise as `attach` does."""
    seen, hidden = _seen(stack, call, team)
    if len(seen) > 1:
        teams = ", ".join(name for name, namespace in stack.settings.namespaces.items() if namespace in seen)
        raise Refused(
            f"expected the team of call {call!r}, because several teams of stack {stack.stack} have a call of this"
            f" name ({teams}); pass team="
        )
    for namespace, spec in seen.items():
        if spec is not None:
            return Call(call, namespace, stack, spec)
    unread = f"; namespaces that you may not read: {', '.join(hidden)}" if hidden else ""
    raise CallGone(f"stack {stack.stack} has no call {call!r}{unread}; it was cancelled, or ended more than a day ago")


def _seen(stack: StackConnection, call: str, team: str | None) -> tuple[dict[str, CallSpec | None], list[str]]:
    namespaces = stack.settings.namespaces
    searched = set(namespaces.values()) if team is None else {namespaces[stack.team(team)]}
    seen: dict[str, CallSpec | None] = {}
    hidden: list[str] = []
    for namespace in sorted(searched):
        with cluster(stack.stack):
            try:
                seen[namespace] = _spec(stack, namespace, call)
            except ApiError as error:
                # Members of one team may not read the namespaces of others.
                if error.status != FORBIDDEN:
                    raise
                hidden.append(namespace)
    return seen, hidden


def _spec(stack: StackConnection, namespace: str, call: str) -> CallSpec | None:
    jobset = stack.api.find(f"{JOBSETS.format(namespace)}/{call}")
    try:
        return None if jobset is None else call_spec_of(jobset)
    except ValidationError:
        raise CallError(
            f"call {call!r} was created by another version of this package; attach to it with that version"
        ) from None

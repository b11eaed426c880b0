"""Submits a call: chooses its name, writes its parts to the bucket and creates its JobSet."""

import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from infra.jobs import CallJob, Priority, call_jobset, call_secret
from infra.kubernetes import UNREACHABLE, ApiError
from infra.names import JOBSETS, SECRETS
from infra.settings.jobs import HOURS_PER_YEAR
from multislice.call import Call
from multislice.errors import BucketFailed, CallError, NoSuchStack, Refused, bucket
from multislice.packing import Packed
from multislice.place import Place
from workloads.call.folder import new_keys
from workloads.call.parcel import Parcel
from workloads.spec import CallSpec

START_MINUTES = 15.0
"""Time limit for the start of all hosts, because slices may come up minutes apart."""
RETURN_MINUTES = 10.0
"""Time limit for the first host to write a result after the others have returned."""
MOST_HOURS = HOURS_PER_YEAR - 1
"""Longest `max_hours` of a call: that of a job, less an hour for the start."""
_NAME_CHARACTERS = 12
_NAME_END_BYTES = 4
_SERVER_FAULT = 500
"""Statuses from this number mean that the API server failed, perhaps after it had handled the request."""


@dataclass(frozen=True)
class Wish:
    """Request for slices of a stack."""

    slices: str
    """Name of the slice group."""
    count: int
    team: str | None
    """Name of the team. None: the stack's only team."""
    priority: Priority
    max_hours: float
    """Longest run time of the function in hours."""
    check_slices: bool
    """Whether the hosts check their devices before the function begins."""


def submit(packed: Packed, wish: Wish, place: Place) -> Call:
    """Submit a call. After an error or an interruption, everything created so far is removed.

    Raises:
        Refused: The stack or its API server refuses the call.
        NoSuchStack: The API server cannot be reached.
        BucketFailed: The files cannot be written to the bucket.
    """
    place.require(wish.slices, wish.count)
    team = place.team(wish.team)
    name, namespace = call_name(packed.function), place.settings.namespaces[team]
    parcel = Parcel.of(name, packed.function, packed.parts)
    private_key, public_key = new_keys()
    spec = CallSpec(
        id=name,
        folder=place.url(namespace, name),
        manifest_sha256=parcel.sha256,
        public_key=public_key,
        slices=place.settings.slices_of(wish.slices, wish.count),
        start_minutes=START_MINUTES,
        check_slices=wish.check_slices,
        max_hours=wish.max_hours,
        return_minutes=RETURN_MINUTES,
    )
    manifest = call_jobset(CallJob(spec, packed.function, team, wish.slices, wish.priority), place.settings)
    call = Call(name, namespace, place, spec)
    _write(parcel, call)
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


def _write(parcel: Parcel, call: Call) -> None:
    try:
        with bucket(call.place.settings.bucket):
            parcel.write(call.files)
    except BaseException:
        _remove_files(call)
        raise


def _create(manifest: dict[str, Any], private_key: str, call: Call) -> None:
    stack, api = call.place.stack, call.place.api
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
    with suppress(BucketFailed), bucket(call.place.settings.bucket):
        call.files.remove()

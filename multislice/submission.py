"""The way of a call to the queue: a name, the parts in the bucket, the JobSet."""

import re
import secrets
from dataclasses import dataclass

import urllib3

from cli.observed.paths import JOBSETS
from infra.api_server import ApiError
from infra.calls import CallJob, call_jobset
from infra.jobs import Priority
from multislice.call import Call
from multislice.errors import NoSuchStack, Refused
from multislice.packing import Packed
from multislice.place import Place
from workloads.call.parcel import write_parcel
from workloads.spec import CallSpec

START_MINUTES = 15.0
"""Slices may come up minutes apart."""
_KEY_BYTES = 32
_NAME_CHARACTERS = 12
_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True)
class Wish:
    """What a function asks of a stack."""

    slices: str
    """Name of the slice group."""
    count: int
    team: str | None
    """None: the stack's only one."""
    priority: Priority
    timeout: float | None
    """Seconds that the function may take; None: as long as it likes."""


def submit(packed: Packed, wish: Wish, place: Place) -> Call:
    """Submit a call.

    Raises:
        Refused: the stack, or its API server, does not take it.
        NoSuchStack: the API server cannot be reached.
    """
    place.require(wish.slices, wish.count)
    team = place.team(wish.team)
    name = call_name(packed.function)
    minutes = None if wish.timeout is None else wish.timeout / _SECONDS_PER_MINUTE
    folder = place.folder(name)
    spec = CallSpec(
        id=name,
        folder=place.url(name),
        manifest_sha256=write_parcel(folder, name, packed.function, packed.parts),
        key=secrets.token_hex(_KEY_BYTES),
        slices=place.settings.slices_of(wish.slices, wish.count),
        start_minutes=START_MINUTES,
        timeout_minutes=minutes,
    )
    namespace = place.settings.namespaces[team]
    manifest = call_jobset(CallJob(spec, packed.function, team, wish.slices, wish.priority), place.settings)
    try:
        place.api.request("POST", JOBSETS.format(namespace), manifest)
    except ApiError as error:
        folder.remove()
        raise Refused(f"stack {place.stack} does not take a call in namespace {namespace}: {error}") from None
    except urllib3.exceptions.HTTPError as error:
        raise NoSuchStack(f"the cluster of stack {place.stack} cannot be reached: {error}") from None
    return Call(name, namespace, place, spec)


def call_name(function: str) -> str:
    """A name for a call that no other has, and that JobSets may have."""
    words = re.sub(r"[^a-z0-9]+", "-", function.lower()).strip("-")[:_NAME_CHARACTERS].strip("-")
    begins = words if words[:1].isalpha() else f"f-{words}".strip("-")
    return f"{begins}-{secrets.token_hex(4)}"

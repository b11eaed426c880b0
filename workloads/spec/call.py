"""The specification of one call of a function on slices."""

from typing import Annotated

from pydantic import Field

from workloads.spec.base import Spec
from workloads.spec.slices import SliceSpec

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Ed25519 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A public key."""


class CallSpec(Spec):
    """What a host needs to carry out a call: written by whoever calls, read by `workloads.call`."""

    id: str
    """Name of the call, which its JobSet has too."""
    folder: str
    """Of the call's files, `gs://BUCKET/teams/NAMESPACE/calls/ID` or a local one."""
    manifest_sha256: Sha256
    """Of the file `manifest.json` in the folder. Whoever may write to the bucket cannot change what is run."""
    public_key: Ed25519
    """Verifies the seals of what comes back, for the same reason. Only the hosts have the private key."""
    slices: SliceSpec
    start_minutes: Annotated[float, Field(gt=0)]
    """Longest time from the first host's start until all have joined and opened their devices."""
    check_slices: bool
    """Whether all devices must first compute and communicate rightly."""
    max_hours: Annotated[float, Field(gt=0)]
    """Longest time that the function may take on any host."""
    return_minutes: Annotated[float, Field(gt=0)]
    """Longest time from its return on the first host to its return on the last one."""

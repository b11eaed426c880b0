"""The specification of one call of a function on slices."""

from typing import Annotated

from pydantic import Field

from workloads.spec.base import Spec
from workloads.spec.slices import SliceSpec

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Ed25519 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A public key."""


class CallSpec(Spec):
    """All settings of a call. The calling machine writes them; `workloads.call` reads them on each host."""

    id: str
    """Name of the call and of its JobSet."""
    folder: str
    """Folder of the call's files, `gs://BUCKET/teams/NAMESPACE/calls/ID` or a local path."""
    manifest_sha256: Sha256
    """Hash of the file `manifest.json` in the folder, so that write access to the bucket cannot change what runs."""
    public_key: Ed25519
    """Public key that verifies the seals of the results, for the same reason. Only the hosts have the private key."""
    slices: SliceSpec
    start_minutes: Annotated[float, Field(gt=0)]
    """Time limit in minutes from the first host's start until all hosts have joined and opened their devices."""
    check_slices: bool
    """Whether to check computation and communication of all devices first."""
    max_hours: Annotated[float, Field(gt=0)]
    """Time limit of the function on any host, in hours."""
    return_minutes: Annotated[float, Field(gt=0)]
    """Time limit in minutes from the function's return on the first host to its return on the last one."""

"""The JobSets of function calls, and what their callers need to know of a stack.

The JobSet of a call is not a resource of the stack. The caller creates it, in the namespace and queue of their team,
from what the stack exports."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra import jobset
from infra.names import FUNCTION_ANNOTATION, secret_name
from infra.settings.jobs import FunctionJob, Functions, JobSlices, Priority
from infra.settings.schema import Placement, SliceGroup
from infra.settings.stack import Settings
from infra.submission import Submission, slice_spec
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec, SliceSpec, Spec

CALLS_OUTPUT = "calls"
"""Name of the stack output for callers of functions."""
KEPT_SECONDS = 24 * 60 * 60
"""Seconds between a call's end and the deletion of its JobSet, with its logs and the key that verifies its result."""
GRACE_SECONDS = 10
"""Seconds in which a host of a call has to end. It needs no time except for the kernel's clean-up."""
_SECONDS_PER_HOUR, _SECONDS_PER_MINUTE = 3600, 60


class CallSettings(Spec):
    """What a stack exports for callers of functions on its slices."""

    image: str
    """Image of the hosts, by digest."""
    bucket: str
    """Name of the checkpoint bucket. It contains the files of calls in the folders of their teams."""
    slices: Mapping[str, SliceGroup]
    namespaces: Mapping[str, str]
    """Namespace of each team. A team's queue has the name of the team."""
    placement: Placement
    mounted_bucket: str | None
    """Bucket that the hosts mount as the folder /datasets."""
    functions: Functions
    prefix: str = ""
    """Prefix of the names of priorities in an existing cluster. Default: none."""

    def slices_of(self, group: str, count: int) -> SliceSpec:
        return slice_spec(self.slices[group].shape, count)


def call_settings(settings: Settings, image: pulumi.Input[str]) -> dict[str, Any]:
    """Return the stack output for callers."""
    exported = CallSettings(
        image="",
        bucket=settings.checkpoint_bucket,
        slices=settings.slices,
        namespaces={name: team.namespace for name, team in settings.teams.items()},
        placement=settings.scheduling.placement,
        mounted_bucket=settings.mounted_bucket,
        functions=settings.functions,
        prefix=settings.prefix,
    )
    return {**exported.model_dump(mode="json"), "image": image}


@dataclass(frozen=True)
class CallJob:
    """What a call adds to the settings for its JobSet."""

    spec: CallSpec
    function: str
    """Name of the function, for display."""
    team: str
    group: str
    priority: Priority


def call_jobset(call: CallJob, settings: CallSettings) -> dict[str, Any]:
    """Return the JobSet of a call."""
    submitted = Submission(
        job=_function_job(call, settings.functions),
        slices=call.spec.slices,
        spec=None,
        folder=call.spec.folder,
        image=settings.image,
        checking_image=None,
        namespace=settings.namespaces[call.team],
        queue=call.team,
        groups={call.group: settings.slices[call.group]},
        placement=settings.placement,
        mounted_bucket=settings.mounted_bucket,
        compile_cache=None,
        secrets=(CALL_KEY_VARIABLE,),
        prefix=settings.prefix,
    )
    manifest: dict[str, Any] = jobset.render(submitted)
    manifest["metadata"].setdefault("annotations", {})[FUNCTION_ANNOTATION] = call.function
    manifest["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return manifest


def _function_job(call: CallJob, functions: Functions) -> FunctionJob:
    # The hosts end a function that takes too long and report where it was. Kueue ends a little later those that cannot.
    max_seconds = math.ceil(_SECONDS_PER_HOUR * call.spec.max_hours + 2 * _SECONDS_PER_MINUTE * call.spec.start_minutes)
    return FunctionJob(
        name=call.spec.id,
        team=call.team,
        slices=JobSlices(group=call.group, count=call.spec.slices.count),
        call=call.spec,
        backend=call.spec.backend,
        pathways=functions.pathways if call.spec.backend == "pathways" else None,
        priority=call.priority,
        max_restarts=0,
        grace_seconds=GRACE_SECONDS,
        max_hours=max_seconds / _SECONDS_PER_HOUR,
    )


def call_secret(call: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """Return the Secret with the key of a call. `call` is the JobSet on the API server; they are deleted together."""
    metadata = call["metadata"]
    owner = {key: call[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "stringData": {CALL_KEY_VARIABLE: private_key},
    }


def call_spec_of(manifest: Mapping[str, Any]) -> CallSpec | None:
    """Return the call that a JobSet is for; `None` if it is not for a call."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == CALL_SPEC_VARIABLE:
                    return CallSpec.model_validate_json(variable["value"])
    return None

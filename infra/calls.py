"""Calls of functions: what a stack tells those who make them, and the JobSet of one.

Owns the stack's output for calls and what of a JobSet is a call's own; the rest is rendered as any job's. A call's
JobSet is no resource of the stack: whoever calls makes it, in the namespace and the queue of their team.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra import jobset
from infra.job_spec import slice_spec
from infra.names import FUNCTION_ANNOTATION, secret_name
from infra.settings.jobs import FunctionJob, JobSlices, Priority
from infra.settings.schema import Placement, SliceGroup
from infra.settings.stack import Settings
from infra.submission import Submission
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec, SliceSpec, Spec

OUTPUT = "calls"
"""Name of the stack's output."""
KEPT_SECONDS = 24 * 60 * 60
"""Time between a call's end and the removal of its JobSet, with its logs and the key that verifies its result."""
GRACE_SECONDS = 10
"""A host ends at once when it is told to, but for what the kernel still does for it."""
_SECONDS_PER_HOUR, _SECONDS_PER_MINUTE = 3600, 60


class CallSettings(Spec):
    """What a stack tells those who call functions on its slices."""

    image: str
    """That the hosts run, by digest."""
    bucket: str
    """Name of the checkpoint bucket, which has the files of calls in the folders of their teams."""
    slices: Mapping[str, SliceGroup]
    namespaces: Mapping[str, str]
    """By team; a team's queue has the team's name."""
    placement: Placement
    mounted_bucket: str | None
    """Its files are the hosts' folder /datasets."""

    def slices_of(self, group: str, count: int) -> SliceSpec:
        """`count` slices of a group."""
        return slice_spec(self.slices[group].shape, count)


def call_settings(settings: Settings, image: pulumi.Input[str]) -> dict[str, Any]:
    """The output."""
    datasets = settings.datasets
    told = CallSettings(
        image="",
        bucket=settings.checkpoint_bucket,
        slices=settings.slices,
        namespaces={name: team.namespace for name, team in settings.teams.items()},
        placement=settings.scheduling.placement,
        mounted_bucket=datasets.bucket if datasets and datasets.mount else None,
    )
    return {**told.model_dump(mode="json"), "image": image}


@dataclass(frozen=True)
class CallJob:
    """What of a call its JobSet is rendered from."""

    spec: CallSpec
    function: str
    """Its name, for people."""
    team: str
    group: str
    priority: Priority


def call_jobset(call: CallJob, settings: CallSettings) -> dict[str, Any]:
    """The JobSet of a call."""
    submitted = Submission(
        job=_job(call),
        slices=call.spec.slices,
        spec=None,
        folder=call.spec.folder,
        image=settings.image,
        checking_image=None,
        namespace=settings.namespaces[call.team],
        groups={call.group: settings.slices[call.group]},
        placement=settings.placement,
        mounted_bucket=settings.mounted_bucket,
        compile_cache=None,
        secrets=(CALL_KEY_VARIABLE,),
    )
    manifest: dict[str, Any] = jobset.render(submitted)
    manifest["metadata"].setdefault("annotations", {})[FUNCTION_ANNOTATION] = call.function
    manifest["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return manifest


def call_secret(call: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """The Secret with the key of a call, by the JobSet that the API server has; it goes with the JobSet."""
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


def spec_of(manifest: Mapping[str, Any]) -> CallSpec | None:
    """The call that a JobSet is for; None: it is for none."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == CALL_SPEC_VARIABLE:
                    return CallSpec.model_validate_json(variable["value"])
    return None


def _job(call: CallJob) -> FunctionJob:
    # The hosts end a function that takes too long and say where it was. Kueue ends those that cannot, a little later.
    max_seconds = math.ceil(_SECONDS_PER_HOUR * call.spec.max_hours + 2 * _SECONDS_PER_MINUTE * call.spec.start_minutes)
    return FunctionJob(
        name=call.spec.id,
        team=call.team,
        slices=JobSlices(group=call.group, count=call.spec.slices.count),
        call=call.spec,
        priority=call.priority,
        max_restarts=0,
        grace_seconds=GRACE_SECONDS,
        max_hours=max_seconds / _SECONDS_PER_HOUR,
    )

"""What a review is made of, in the tests: a compilation's figures, made up, and workloads of a queue."""

import json
from datetime import UTC, datetime
from typing import Any

from infra.review.review import Known
from infra.stack.names import team_of
from infra.stack.settings.stack import Settings
from tests.infra.one_job import only_spec
from tests.infra.recording import Values, stack_values
from workloads.preflight_result import BigArray, PreflightResult, Remedy, StepEstimate, preflight_key

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NOTHING = Known(at=NOW, preflights={}, deployed=None, workloads=None)


def own(stack: str) -> Values:
    """A stack file of the repository, its example values replaced."""
    text = json.dumps(stack_values(stack))
    return json.loads(text.replace("my-", "our-").replace("0" * 64, "a" * 64))


def fitting(settings: Settings) -> PreflightResult:
    """A step of 2 s at best, 2.5 s as it is quoted, on chips of 95 GiB."""
    return _result(
        settings,
        fits=True,
        peak_gib=40.0,
        needed_gib=40.0,
        steps=tuple(_step(settings, *pair) for pair in ((0.25, 3.0), (0.35, 2.5), (0.5, 2.0))),
        ici_sent_bytes={"all-gather": 4e9},
        dcn_sent_bytes={"all-reduce": 1e9},
    )


def unfit(settings: Settings) -> PreflightResult:
    """The same without a program."""
    remedies = (
        Remedy(change="training.remat: full", fits=True, peak_gib=90.0, seconds=3.5),
        Remedy(change="mesh: fsdp 32 x tensor 2", fits=False, peak_gib=None, seconds=None),
    )
    arrays = (BigArray(what="logits", shape="f32[2,8192,128256]", gib=7.83),)
    return _result(settings, fits=False, needed_gib=120.0, biggest_arrays=arrays, remedies=remedies)


def running(
    namespace: str, queue: str, flavor: str, chips: int, name: str = "other", priority: int = 500
) -> dict[str, Any]:
    """A workload that Kueue has admitted."""
    since = "2026-11-20T00:00:00Z"
    container = {"name": "trainer", "resources": {"requests": {"google.com/tpu": "4"}}}
    pods = {"name": "slice", "count": chips // 4, "template": {"spec": {"containers": [container]}}}
    assigned = {"name": "slice", "count": chips // 4, "flavors": {"google.com/tpu": flavor}}
    assigned |= {"resourceUsage": {"google.com/tpu": str(chips)}}
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": since}
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": since}
        | {"ownerReferences": [{"kind": "JobSet", "name": name}]},
        "spec": {"queueName": queue, "active": True, "priority": priority, "podSets": [pods]},
        "status": {
            "admission": {"clusterQueue": team_of(queue), "podSetAssignments": [assigned]},
            "conditions": [reserved, reserved | {"type": "Admitted"}],
        },
    }


def _step(settings: Settings, kernel_efficiency: float, seconds: float) -> StepEstimate:
    spec = only_spec(settings)
    tokens = spec.training.global_batch * spec.training.sequence_length
    rate = tokens / seconds / spec.slices.chips
    return StepEstimate(
        kernel_efficiency=kernel_efficiency, seconds=seconds, mfu=1 / seconds, tokens_per_second_per_chip=rate
    )


def _result(settings: Settings, **given: Any) -> PreflightResult:
    spec = only_spec(settings)
    nothing: dict[str, Any] = {
        "unsupported": None,
        "peak_gib": None,
        "usable_gib": 95.7,
        "biggest_arrays": (),
        "remedies": (),
        "steps": (),
        "ici_sent_bytes": {},
        "dcn_sent_bytes": {},
        "dcn_exposed_seconds": 0.0,
        "compile_wall_seconds": 60.0,
        "compile_cpu_seconds": 90.0,
        "warnings": (),
    }
    return PreflightResult(
        key=preflight_key(spec),
        versions={"jax": "0.0.0"},
        generation=spec.slices.generation,
        topology=spec.slices.topology,
        slices=spec.slices.count,
        chips=spec.slices.chips,
        **nothing | given,
    )

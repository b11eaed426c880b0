"""Hardware that computes wrongly, and two jobs that would write to the same files."""

import json
from dataclasses import replace

from chaos.sabotage import NODE_RECORD, Sabotage, add_sabotages
from chaos.target import TAKE_STEP, Fault, Target, comes_with_the_job
from chaos.verdict import Expected
from infra.kubernetes import Json
from infra.names import NODES
from workloads.spec import BAD_HOST_KEY, JOB_SPEC_VARIABLE

_SECOND = "second-writer"
_ONE_SLICE = {"slices": {"group": "trillium", "count": 1}}
"""One slice of two, so that the other one is free."""
_OTHER_SHAPE = 1e-4
"""Tolerance of losses, because sums are computed in a different order than on two slices."""
_WAIT_SECONDS = 240
_HOSTS = ("slice-0-0", "slice-0-1", "slice-1-0", "slice-1-1")
_PRODUCTS = "workloads.training.slice_check:products"
_WRONG_PRODUCTS = add_sabotages(
    Sabotage("misproduct", _PRODUCTS, _HOSTS, calls=(1, 1), start=None, node_of="slice-0-1")
)
_SLOW_STEPS = add_sabotages(Sabotage("delay", TAKE_STEP, _HOSTS, calls=(1, 24), seconds=5.0))
_FLIPPED_STEP = 12


def _list_marked(target: Target) -> list[Json]:
    """Nodes that are marked as bad hosts."""
    nodes = target.objects(NODES)
    return [node for node in nodes if BAD_HOST_KEY in [taint["key"] for taint in node["spec"].get("taints", [])]]


def _repair(target: Target) -> None:
    for node in _list_marked(target):
        taints = [taint for taint in node["spec"]["taints"] if taint["key"] != BAD_HOST_KEY]
        patch = {"metadata": {"annotations": {BAD_HOST_KEY: None}}, "spec": {"taints": taints}}
        target.api.patch(f"{NODES}/{node['metadata']['name']}", patch)


def _says(target: Target, job: str, text: str) -> bool:
    """Return whether the cause in any failure record of the job contains the text."""
    records = target.folder(job).glob("failures/*/*.json")
    return any(text in json.loads(record.read_text())["cause"] for record in records)


def _goes_elsewhere(target: Target, job: str) -> None:
    """Wait until the bad host is named, its slice marked and the job done on the other slice; then repair the nodes."""
    try:
        target.wait("a record of the bad host", lambda: _says(target, job, f"{job}-slice-0-1"), _WAIT_SECONDS)
        target.wait("the two nodes of a slice to be marked", lambda: len(_list_marked(target)) == 2, _WAIT_SECONDS)
        target.wait_for_end(job)
        avoided = {node["metadata"]["name"] for node in _list_marked(target)}
        target.wait(
            "the pods on other nodes", lambda: not avoided & {pod["spec"]["nodeName"] for pod in target.pods(job)}, 1
        )
    finally:
        _repair(target)


def _has_nowhere_to_go(target: Target, job: str) -> None:
    """Wait until the job, which needs both slices, waits for the marked nodes and its pods say why; then repair
    them."""

    def waits_for_taint() -> bool:
        conditions = [each for pod in target.pods(job) for each in pod["status"].get("conditions", ())]
        unscheduled = [each for each in conditions if each["type"] == "PodScheduled"]
        return any("untolerated taint" in each.get("message", "") for each in unscheduled)

    try:
        target.wait("the two nodes of a slice to be marked", lambda: len(_list_marked(target)) == 2, _WAIT_SECONDS)
        target.wait("a pod that says which taint keeps it waiting", waits_for_taint, _WAIT_SECONDS)
        # This repairs the host.
        (target.folder(job) / NODE_RECORD).write_text("none")
    finally:
        _repair(target)


def _second_writer(target: Target, job: str) -> None:
    """Submit another job with the same path and check that it is refused with the name of the first job's run."""

    def same_path(manifest: Json) -> None:
        for each in manifest["spec"]["replicatedJobs"]:
            for variable in each["template"]["spec"]["template"]["spec"]["containers"][0]["env"]:
                if variable["name"] == JOB_SPEC_VARIABLE:
                    spec = json.loads(variable["value"])
                    spec["storage"]["path"] = spec["storage"]["path"].replace(_SECOND, job)
                    variable["value"] = json.dumps(spec)

    first = target.jobset(job)["metadata"]["uid"]
    target.submit(replace(_TWO_WRITERS, name=_SECOND, edit=same_path))
    try:
        target.wait("the refusal", lambda: _says(target, job, f"is written by run {first}"), _WAIT_SECONDS)
        target.wait_for_end(_SECOND)
        status = target.jobset(_SECOND)["status"]
        target.wait(f"{_SECOND} to fail at once, got {status}", lambda: status["terminalState"] == "Failed", 1)
    finally:
        target.remove(_SECOND)


_TWO_WRITERS = Fault(
    "two-writers",
    "a second job writes to the path of the first",
    _second_writer,
    Expected(starts=1, charged=0, lost_steps=0, loss_tolerance=_OTHER_SHAPE),
    at_step=1,
    job=_ONE_SLICE,
    edit=_SLOW_STEPS,
)

DAMAGE = (
    Fault(
        "bad-host",
        "the chips of a host multiply wrongly, and another slice is free",
        _goes_elsewhere,
        # The attempt that found it never opened the run, so the ledger contains only the next one.
        Expected(
            starts=1,
            charged=0,
            culprit="bad-host-slice-0-",
            cause="host bad-host-slice-0-1",
            lost_steps=0,
            loss_tolerance=_OTHER_SHAPE,
        ),
        job=_ONE_SLICE,
        edit=_WRONG_PRODUCTS,
    ),
    Fault(
        "bad-host-without-spare",
        "the chips of a host multiply wrongly, and no other slice is free until it is repaired",
        _has_nowhere_to_go,
        Expected(
            starts=1,
            charged=0,
            culprit="bad-host-without-spare-slice-",
            cause="host bad-host-without-spare-slice-0-1",
            lost_steps=0,
        ),
        edit=_WRONG_PRODUCTS,
    ),
    Fault(
        "flipped-bit",
        "a bit of one slice's weights flips between two steps",
        comes_with_the_job,
        Expected(
            endings=frozenset({"SILENT_DAMAGE"}),
            culprit="flipped-bit-slice-0-0",
            cause="slices 0 or 1 computed wrongly: parameters.",
            # The steps from the flip until it is noticed are done again, with the right losses.
            spoiled_from=_FLIPPED_STEP,
        ),
        at_step=_FLIPPED_STEP,
        job={"training": {"compare_slices_every_steps": 5}},
        edit=add_sabotages(Sabotage("flip", TAKE_STEP, ("slice-1-0",), calls=(_FLIPPED_STEP, _FLIPPED_STEP))),
    ),
    _TWO_WRITERS,
)

"""Hardware that computes wrongly, and two jobs that would write to the same files."""

import json
from dataclasses import replace

from infra.cluster.kubernetes import Json
from infra.stack.names import NODES
from tests.chain.stack import Chain
from tests.faults.fault import TAKE_STEP, Expected, Fault
from tests.faults.sabotage import NODE_RECORD, Sabotage, add_sabotages
from tests.faults.trial import submit
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


def _list_marked(chain: Chain) -> list[Json]:
    """Nodes that are marked as bad hosts."""
    nodes = chain.objects("nodes")
    return [node for node in nodes if BAD_HOST_KEY in [taint["key"] for taint in node["spec"].get("taints", [])]]


def _repair(chain: Chain) -> None:
    for node in _list_marked(chain):
        taints = [taint for taint in node["spec"]["taints"] if taint["key"] != BAD_HOST_KEY]
        patch = {"metadata": {"annotations": {BAD_HOST_KEY: None}}, "spec": {"taints": taints}}
        chain.api.patch(f"{NODES}/{node['metadata']['name']}", patch)


def _says(chain: Chain, job: str, text: str) -> bool:
    """Return whether the cause in any failure record of the job contains the text."""
    records = chain.job_folder(job).glob("failures/*/*.json")
    return any(text in json.loads(record.read_text())["cause"] for record in records)


def _goes_elsewhere(chain: Chain, job: str) -> None:
    """Wait until the bad host is named, its slice marked and the job done on the other slice; then repair the nodes."""
    try:
        chain.wait("a record of the bad host", lambda: _says(chain, job, f"{job}-slice-0-1"), _WAIT_SECONDS)
        chain.wait("the two nodes of a slice to be marked", lambda: len(_list_marked(chain)) == 2, _WAIT_SECONDS)
        chain.wait_for_end(job)
        avoided = {node["metadata"]["name"] for node in _list_marked(chain)}
        chain.wait(
            "the pods on other nodes", lambda: not avoided & {pod["spec"]["nodeName"] for pod in chain.pods(job)}, 1
        )
    finally:
        _repair(chain)


def _has_nowhere_to_go(chain: Chain, job: str) -> None:
    """Wait until the job, which needs both slices, waits for the marked nodes and its pods say why; then repair
    them."""

    def waits_for_taint() -> bool:
        conditions = [each for pod in chain.pods(job) for each in pod["status"].get("conditions", ())]
        unscheduled = [each for each in conditions if each["type"] == "PodScheduled"]
        return any("untolerated taint" in each.get("message", "") for each in unscheduled)

    try:
        chain.wait("the two nodes of a slice to be marked", lambda: len(_list_marked(chain)) == 2, _WAIT_SECONDS)
        chain.wait("a pod that says which taint keeps it waiting", waits_for_taint, _WAIT_SECONDS)
        # This repairs the host.
        (chain.job_folder(job) / NODE_RECORD).write_text("none")
    finally:
        _repair(chain)


def _second_writer(chain: Chain, job: str) -> None:
    """Submit another job with the same path and check that it is refused with the name of the first job's run."""

    def same_path(manifest: Json) -> None:
        for each in manifest["spec"]["replicatedJobs"]:
            for variable in each["template"]["spec"]["template"]["spec"]["containers"][0]["env"]:
                if variable["name"] == JOB_SPEC_VARIABLE:
                    spec = json.loads(variable["value"])
                    spec["storage"]["path"] = spec["storage"]["path"].replace(_SECOND, job)
                    variable["value"] = json.dumps(spec)

    first = chain.jobset(job)["metadata"]["uid"]
    submit(chain, replace(_TWO_WRITERS, name=_SECOND, edit=same_path))
    try:
        chain.wait("the refusal", lambda: _says(chain, job, f"is written by run {first}"), _WAIT_SECONDS)
        chain.wait_for_end(_SECOND)
        status = chain.jobset(_SECOND)["status"]
        chain.wait(f"{_SECOND} to fail at once, got {status}", lambda: status["terminalState"] == "Failed", 1)
    finally:
        chain.remove(_SECOND)


_TWO_WRITERS = Fault(
    "two-writers",
    "a second job writes to the path of the first",
    Expected(starts=1, charged=0, lost_steps=0, loss_tolerance=_OTHER_SHAPE),
    _second_writer,
    at_step=1,
    job=_ONE_SLICE,
    edit=_SLOW_STEPS,
)

DAMAGE = (
    Fault(
        "bad-host",
        "the chips of a host multiply wrongly, and another slice is free",
        # The attempt that found it never opened the run, so the ledger contains only the next one.
        Expected(
            starts=1,
            charged=0,
            culprit="slice-0-",
            cause="host {job}-slice-0-1",
            lost_steps=0,
            loss_tolerance=_OTHER_SHAPE,
        ),
        _goes_elsewhere,
        job=_ONE_SLICE,
        edit=_WRONG_PRODUCTS,
    ),
    Fault(
        "bad-host-without-spare",
        "the chips of a host multiply wrongly, and no other slice is free until it is repaired",
        Expected(starts=1, charged=0, culprit="slice-", cause="host {job}-slice-0-1", lost_steps=0),
        _has_nowhere_to_go,
        edit=_WRONG_PRODUCTS,
    ),
    Fault(
        "flipped-bit",
        "a bit of one slice's weights flips between two steps",
        Expected(
            endings=frozenset({"SILENT_DAMAGE"}),
            culprit="slice-0-0",
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

"""Hardware that computes wrongly, and two jobs that would spoil each other's files."""

import json
from dataclasses import replace

from chaos.fault import TAKE_STEP, Expected, Fault, comes_with_the_job
from chaos.field import Field
from chaos.sabotage import NODE_RECORD, Sabotage, sabotaged
from infra.kubernetes import Json
from infra.names import NODES
from workloads.spec import BAD_HOST_KEY, JOB_SPEC_VARIABLE

_SECOND = "second-writer"
_ONE_SLICE = {"slices": {"group": "trillium", "count": 1}}
"""Of the field's two: the other one is free."""
_OTHER_SHAPE = 1e-4
"""Tolerance of losses: sums are made in another order than on two slices."""
_WAIT_SECONDS = 240
_HOSTS = ("slice-0-0", "slice-0-1", "slice-1-0", "slice-1-1")
_WRONG_PRODUCTS = sabotaged(
    Sabotage(
        "misproduct",
        "workloads.training.slice_check:products",
        _HOSTS,
        calls=(1, 1),
        start=None,
        node_of="slice-0-1",
    )
)
_SLOW_STEPS = sabotaged(Sabotage("delay", TAKE_STEP, _HOSTS, calls=(1, 24), seconds=5.0))
_FLIPPED_STEP = 12


def _marked(field: Field) -> list[Json]:
    """Nodes with the mark of a bad host."""
    nodes = field.objects(NODES)
    return [node for node in nodes if BAD_HOST_KEY in [taint["key"] for taint in node["spec"].get("taints", [])]]


def _take_back(field: Field) -> None:
    for node in _marked(field):
        taints = [taint for taint in node["spec"]["taints"] if taint["key"] != BAD_HOST_KEY]
        patch = {"metadata": {"annotations": {BAD_HOST_KEY: None}}, "spec": {"taints": taints}}
        field.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", patch)


def _says(field: Field, job: str, text: str) -> bool:
    """Whether a failure record below the job's path says so."""
    records = field.folder(job).glob("failures/*/*.json")
    return any(text in json.loads(record.read_text())["cause"] for record in records)


def _goes_elsewhere(field: Field, job: str) -> None:
    """The bad host is named, its slice marked, and the job done on the other slice; then all is mended."""
    try:
        field.wait("a record of the bad host", lambda: _says(field, job, f"{job}-slice-0-1"), _WAIT_SECONDS)
        field.wait("the two nodes of a slice to be marked", lambda: len(_marked(field)) == 2, _WAIT_SECONDS)
        field.wait_for_end(job)
        avoided = {node["metadata"]["name"] for node in _marked(field)}
        field.wait(
            "the pods on other nodes", lambda: not avoided & {pod["spec"]["nodeName"] for pod in field.pods(job)}, 1
        )
    finally:
        _take_back(field)


def _has_nowhere_to_go(field: Field, job: str) -> None:
    """Both slices are the job's: it waits and its pods say why, until the nodes are taken back as good."""
    try:
        field.wait("the two nodes of a slice to be marked", lambda: len(_marked(field)) == 2, _WAIT_SECONDS)
        field.wait("a pod that says which taint keeps it waiting", lambda: _waits_for_taint(field, job), _WAIT_SECONDS)
        # The repair.
        (field.folder(job) / NODE_RECORD).write_text("none")
    finally:
        _take_back(field)


def _waits_for_taint(field: Field, job: str) -> bool:
    conditions = [each for pod in field.pods(job) for each in pod["status"].get("conditions", ())]
    return any("untolerated taint" in each.get("message", "") for each in conditions if each["type"] == "PodScheduled")


def _second_writer(field: Field, job: str) -> None:
    """Another job of the same path is refused with the name of the first one's run."""

    def same_path(manifest: Json) -> None:
        for each in manifest["spec"]["replicatedJobs"]:
            for variable in each["template"]["spec"]["template"]["spec"]["containers"][0]["env"]:
                if variable["name"] == JOB_SPEC_VARIABLE:
                    spec = json.loads(variable["value"])
                    spec["storage"]["path"] = spec["storage"]["path"].replace(_SECOND, job)
                    variable["value"] = json.dumps(spec)

    first = field.jobset(job)["metadata"]["uid"]
    field.submit(replace(_TWO_WRITERS, name=_SECOND, edit=same_path))
    try:
        field.wait("the refusal", lambda: _says(field, job, f"is written by run {first}"), _WAIT_SECONDS)
        field.wait_for_end(_SECOND)
        status = field.jobset(_SECOND)["status"]
        field.wait(f"{_SECOND} to fail at once, got {status}", lambda: status["terminalState"] == "Failed", 1)
    finally:
        field.remove(_SECOND)


_TWO_WRITERS = Fault(
    "two-writers",
    "a second job writes to the path of the first",
    _second_writer,
    Expected(starts=1, charged=0, lost_steps=0, loss_tolerance=_OTHER_SHAPE),
    at_step=1,
    job=_ONE_SLICE,
    edit=_SLOW_STEPS,
)

FAULTS = (
    Fault(
        "bad-host",
        "the chips of a host multiply wrongly, and another slice is free",
        _goes_elsewhere,
        # The start that found it never came to the run: its ledger knows the next one alone.
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
            # Those from the flip until it was noticed are done again, and right then.
            spoiled_from=_FLIPPED_STEP,
        ),
        at_step=_FLIPPED_STEP,
        job={"training": {"compare_slices_every_steps": 5}},
        edit=sabotaged(Sabotage("flip", TAKE_STEP, ("slice-1-0",), calls=(_FLIPPED_STEP, _FLIPPED_STEP))),
    ),
    _TWO_WRITERS,
)

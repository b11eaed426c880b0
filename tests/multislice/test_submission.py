import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import ReadTimeoutError

from infra.cluster.job_state import leader_of
from infra.cluster.kubernetes import ApiError, Json
from infra.stack.job_objects import call_spec_of
from infra.stack.names import FUNCTION_ANNOTATION
from infra.stack.settings.jobs import Functions
from infra.stack.settings.values import JobName
from multislice import forget
from multislice.call import Call
from multislice.connection import StackConnection
from multislice.errors import BucketFailed, CallError, CallGone, NoSuchStack, Refused
from multislice.submission import CallRequest, call_name, find_call, is_call_name, submit
from tests.infra.stack.test_pathways import IMAGES
from tests.multislice.known import NAMESPACE, PACKED, REQUEST, Objects, connection, files
from workloads.call.parcel import read_parcel

POOL = cast(ConnectionPool, None)


def test_a_call_becomes_a_jobset_of_the_team_that_knows_where_its_parts_are(
    stack: StackConnection, objects: Objects
) -> None:
    call = submit(PACKED, REQUEST, stack)
    ((path, jobset),) = objects.found.items()
    assert path == f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{call.id}"
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert jobset["metadata"]["annotations"][FUNCTION_ANNOTATION] == "len"
    assert call_spec_of(jobset) == call.spec
    assert call.spec.folder == f"gs://sandbox-local-checkpoints/teams/{NAMESPACE}/calls/{call.id}"
    _, parts = read_parcel(call.spec, call.files)
    assert parts == PACKED.parts


def test_a_stack_that_refuses_leaves_nothing_behind(stack: StackConnection, objects: Objects, tmp_path: Path) -> None:
    objects.refuses = "not you"
    with pytest.raises(Refused, match="stack local refuses a call in namespace research: not you"):
        submit(PACKED, REQUEST, stack)
    assert not files(tmp_path)


@pytest.mark.parametrize("where", ["POST", "/secrets"])
@pytest.mark.parametrize(
    "fault", [KeyboardInterrupt(), OSError("reset"), ReadTimeoutError(POOL, "", "no answer"), ApiError(504, "", "late")]
)
def test_a_submission_that_does_not_come_to_its_end_leaves_neither_jobset_nor_files(
    stack: StackConnection, objects: Objects, tmp_path: Path, where: str, fault: BaseException
) -> None:
    objects.fails[where] = fault
    with pytest.raises((KeyboardInterrupt, NoSuchStack, Refused)):
        submit(PACKED, REQUEST, stack)
    assert not objects.found
    assert not files(tmp_path)


def test_a_call_that_may_still_exist_is_reported(stack: StackConnection, objects: Objects, tmp_path: Path) -> None:
    objects.fails |= {"POST": OSError("reset"), "DELETE": OSError("reset")}
    with pytest.raises(NoSuchStack, match="call len-.* may still exist; it will end as soon as it starts"):
        submit(PACKED, REQUEST, stack)
    assert not files(tmp_path)


def test_an_upload_that_is_interrupted_leaves_no_files_and_submits_nothing(
    stack: StackConnection, objects: Objects, tmp_path: Path
) -> None:
    write, written = stack.filesystem.pipe_file, list[str]()

    def pipe_file(path: str, content: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path)
        write(path, content)

    stack.filesystem.pipe_file = pipe_file
    with pytest.raises(KeyboardInterrupt):
        submit(PACKED, REQUEST, stack)
    assert written
    assert not objects.found
    assert not files(tmp_path)


def test_a_bucket_that_takes_no_files_is_reported_and_nothing_is_submitted(
    stack: StackConnection, objects: Objects
) -> None:
    stack.filesystem.fails["pipe_file"] = OSError("Forbidden: not you")
    with pytest.raises(BucketFailed, match="gs://sandbox-local-checkpoints cannot be .* Forbidden: not you"):
        submit(PACKED, REQUEST, stack)
    assert not objects.found


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        (replace(REQUEST, slices="viperfish"), r"expected slices of stack local \(trillium\), got 'viperfish'"),
        (replace(REQUEST, count=3), "expected count from 1 to the 2 slices of trillium .*, got 3"),
        (replace(REQUEST, team="sales"), r"expected a team of stack local \(research, product\), got 's"),
        (replace(REQUEST, count=1), r"\(research, product\), got no name; pass team="),
    ],
)
def test_a_request_that_the_stack_cannot_fulfil_is_reported(
    tmp_path: Path, objects: Objects, wanted: CallRequest, reported: str
) -> None:
    with pytest.raises(Refused, match=reported):
        submit(PACKED, wanted, connection(tmp_path, objects, product="product"))
    assert not objects.found


def node_selector(jobset: Json) -> dict[str, str]:
    (slices,) = jobset["spec"]["replicatedJobs"]
    return slices["template"]["spec"]["template"]["spec"]["nodeSelector"]


def by_accelerator(name: str) -> CallRequest:
    return replace(REQUEST, slices=None, count=1, accelerator=name)


def test_googles_name_of_a_slice_finds_the_group_that_has_it(stack: StackConnection, objects: Objects) -> None:
    named, found = submit(PACKED, replace(REQUEST, count=1), stack), submit(PACKED, by_accelerator("v6e-8"), stack)
    assert found.spec.slices == named.spec.slices
    (selector,) = {str(node_selector(jobset)) for jobset in objects.found.values()}
    assert "trillium" in selector


@pytest.mark.parametrize("name", ["v6e-16", "v5p-8", "v6e", "h100"])
def test_a_name_that_no_group_has_is_reported_with_the_names_that_there_are(stack: StackConnection, name: str) -> None:
    with pytest.raises(Refused, match=rf"accelerator of stack local: v6e-8 \(slices='trillium'\); got '{name}'"):
        submit(PACKED, by_accelerator(name), stack)


def test_a_name_of_several_groups_is_reported_with_their_names(tmp_path: Path, objects: Objects) -> None:
    stack = connection(tmp_path, objects)
    group = stack.settings.slices["trillium"]
    both = stack.settings.model_copy(update={"slices": {"near": group, "far": group}})
    with pytest.raises(Refused, match="got 'v6e-8' of near, far; pass slices= with one of them"):
        submit(PACKED, by_accelerator("v6e-8"), replace(stack, settings=both))


PATHWAYS = Functions.model_validate({"pathways": IMAGES})


def offering(stack: StackConnection, functions: Functions, **shape: Any) -> StackConnection:
    """The stack with what its functions may use, and slices of another shape."""
    group = stack.settings.slices["trillium"].model_copy(update=shape)
    changed = {"functions": functions, "slices": {"trillium": group}}
    return replace(stack, settings=stack.settings.model_copy(update=changed))


def test_a_call_by_pathways_has_its_output_and_its_result_on_the_head(stack: StackConnection, objects: Objects) -> None:
    call = submit(PACKED, replace(REQUEST, backend="pathways"), offering(stack, PATHWAYS))
    (jobset,) = objects.found.values()
    assert [replicated["name"] for replicated in jobset["spec"]["replicatedJobs"]] == ["head", "slice"]
    assert call.leader == leader_of(jobset) == "head-0-0"
    assert submit(PACKED, REQUEST, stack).leader == "slice-0-0"


@pytest.mark.parametrize(
    ("functions", "shape", "reported"),
    [
        (Functions(), {}, "expected stack local to have the section functions.pathways"),
        (PATHWAYS, {"topology": "1x1", "machine_type": "ct6e-standard-1t"}, "got ct6e-standard-1t of trillium"),
    ],
)
def test_a_stack_that_cannot_run_pathways_refuses_it(
    stack: StackConnection, objects: Objects, functions: Functions, shape: dict[str, str], reported: str
) -> None:
    with pytest.raises(Refused, match=reported):
        submit(PACKED, replace(REQUEST, count=1, backend="pathways"), offering(stack, functions, **shape))
    assert not objects.found


@settings(deadline=None)
@given(st.text(max_size=80))
def test_every_function_gets_a_name_that_a_job_may_have(function: str) -> None:
    name = call_name(function)
    assert TypeAdapter(JobName).validate_python(name) == name
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert is_call_name(name)


@pytest.fixture
def both(tmp_path: Path, objects: Objects) -> StackConnection:
    """The same stack with a second team."""
    return connection(tmp_path, objects, another="another")


def test_a_call_is_found_by_its_name(stack: StackConnection, call: Call) -> None:
    assert find_call(call.id, stack) == call
    with pytest.raises(CallGone, match=r"stack local has no call 'other'; it was cancelled, or ended more than a day"):
        find_call("other", stack)


def test_who_may_look_into_one_teams_namespace_finds_the_calls_there(
    both: StackConnection, call: Call, objects: Objects
) -> None:
    objects.fails["/namespaces/another/"] = ApiError(403, "Forbidden", "not yours")
    assert find_call(call.id, both).namespace == NAMESPACE
    with pytest.raises(CallGone, match="'other'; namespaces that you may not read: another; it was"):
        find_call("other", both)


def test_a_call_of_another_team_is_not_taken_for_ones_own(both: StackConnection, call: Call, objects: Objects) -> None:
    """Members of another team make a JobSet of that name, which may name any result and any key."""
    theirs = {path.replace(f"/{NAMESPACE}/", "/another/"): jobset for path, jobset in objects.found.items()}
    own = next(team for team, namespace in both.settings.namespaces.items() if namespace == NAMESPACE)
    for jobsets in (objects.found | theirs, theirs):
        objects.found = jobsets
        with pytest.raises(Refused, match="expected the team of call .* another.*pass team="):
            find_call(call.id, both)
    with pytest.raises(CallGone):
        find_call(call.id, both, own)
    with pytest.raises(Refused, match="expected a team of stack local"):
        find_call(call.id, both, "nobody")


@pytest.mark.parametrize("fault", [ApiError(401, "", "log in"), OSError("away")])
def test_a_cluster_that_cannot_be_asked_is_reported(stack: StackConnection, objects: Objects, fault: Exception) -> None:
    objects.fails["GET"] = fault
    with pytest.raises(NoSuchStack, match="the cluster of stack local cannot be reached: (log in|away); check that"):
        find_call("train-1f2e3d4c", stack)


def test_a_call_of_another_version_is_reported(stack: StackConnection, call: Call, objects: Objects) -> None:
    (jobset,) = objects.found.values()
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"][0]["value"] = '{"id": "x", "of": "tomorrow"}'
    with pytest.raises(CallError, match="was created by another version of this package"):
        find_call(call.id, stack)


def test_the_files_of_another_teams_call_are_not_removed(
    both: StackConnection, call: Call, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multislice.submission.connect", lambda *_: both)
    before = files(tmp_path)
    forget(call.id, stack="local", team="another")
    assert files(tmp_path) == before
    assert objects.found


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_is_forgotten_with_its_jobset_or_when_its_files_alone_are_left(
    call: Call, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    monkeypatch.setattr("multislice.submission.connect", lambda *_: call.connection)
    if cancelled:
        call.cancel()
    call.files.write("output/model", b"weights")
    forget(call.id, stack="local")
    assert not objects.found
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["", "..", "train", "../train-1f2e3d4c", "train-1f2e3d4c/.."])
def test_what_is_no_name_of_a_call_is_not_forgotten(name: str) -> None:
    with pytest.raises(Refused, match="expected the name of a call, .* nothing was removed"):
        forget(name, stack="local")

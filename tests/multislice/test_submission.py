import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from infra.calls import FUNCTION_ANNOTATION, spec_of
from infra.names import JobName
from multislice.errors import Refused
from multislice.packing import pack
from multislice.project import Project
from multislice.submission import Wish, call_name, submit
from tests.multislice.known import NAMESPACE, Objects, place
from workloads.call.parcel import read_parcel

WISH = Wish("trillium", 2, None, "normal", None)
PACKED = pack(len, ("abc",), {}, Project([]))


def test_a_call_becomes_a_jobset_of_the_team_that_knows_where_its_parts_are(tmp_path: Path) -> None:
    objects = Objects()
    call = submit(PACKED, WISH, place(tmp_path, objects))
    ((path, jobset),) = objects.found.items()
    assert path == f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{call.id}"
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert jobset["metadata"]["annotations"][FUNCTION_ANNOTATION] == "len"
    assert spec_of(jobset) == call.spec
    assert call.spec.folder == f"gs://sandbox-local-checkpoints/calls/{call.id}"
    _, parts = read_parcel(call.spec, call.place.folder(call.id))
    assert parts == PACKED.parts


def test_a_stack_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="stack local does not take a call in namespace research: not you"):
        submit(PACKED, WISH, place(tmp_path, Objects(refuses="not you")))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (Wish("viperfish", 1, None, "normal", None), r"expected slices of stack local \(trillium\), got 'viperfish'"),
        (Wish("trillium", 3, None, "normal", None), "expected count from 1 to the 2 slices of trillium .*, got 3"),
        (Wish("trillium", 1, "sales", "normal", None), r"expected a team of stack local \(research, product\), got 's"),
        (Wish("trillium", 1, None, "normal", None), r"\(research, product\), got no name; say team="),
    ],
)
def test_a_wish_that_the_stack_does_not_have_is_told_with_what_it_has(tmp_path: Path, wish: Wish, told: str) -> None:
    objects = Objects()
    with pytest.raises(Refused, match=told):
        submit(PACKED, wish, place(tmp_path, objects, product="product"))
    assert not objects.found


@settings(deadline=None)
@given(st.text(max_size=80))
def test_every_function_gets_a_name_that_a_job_may_have(function: str) -> None:
    name = call_name(function)
    assert TypeAdapter(JobName).validate_python(name) == name
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)

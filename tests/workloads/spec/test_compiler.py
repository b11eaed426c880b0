from typing import Any

import pytest
from pydantic import ValidationError

from tests.workloads.preflight.jobs import slices_of, v6e_job
from workloads.spec import CompilerSpec, rendered
from workloads.spec.compiler import VMEM

TRILLIUM = slices_of("v6e", "4x4", 2)


def test_a_job_that_changes_nothing_gets_the_options_of_its_generation() -> None:
    v5e = slices_of("v5e", "4x4", 2)
    assert CompilerSpec().options_for(v5e) == {VMEM: 32768}
    assert CompilerSpec().options_for(TRILLIUM)[VMEM] == 98304


def test_only_where_the_choices_differ_is_there_another_way_to_compile() -> None:
    other = v6e_job().compiled_otherwise()
    assert other
    assert other.compiler.compile == "quick"
    assert other.compiler_options == v6e_job().compiler_options | {VMEM: 65536}
    assert v6e_job().model_copy(update={"slices": slices_of("v5e", "4x4", 2)}).compiled_otherwise() is None


def test_a_job_replaces_removes_and_adds_options() -> None:
    gathers = "xla_tpu_enable_sparse_core_collective_offload_all_gather"
    before = CompilerSpec().options_for(TRILLIUM)
    found = CompilerSpec(compiler_options={VMEM: 49152, gathers: None, "xla_new": True}).options_for(TRILLIUM)
    assert before.keys() - found.keys() == {gathers}
    assert (found[VMEM], found["xla_new"]) == (49152, True)


def test_a_job_on_one_slice_starts_libtpu_with_its_own_arguments_only() -> None:
    one = TRILLIUM.model_copy(update={"count": 1})
    own = CompilerSpec(libtpu_args={"megascale_debug_port": 8081})
    assert own.libtpu_args_for(one) == {"megascale_debug_port": 8081}
    assert own.libtpu_args_for(TRILLIUM).keys() > {"megascale_debug_port", "megascale_grpc_premap_memory_bytes"}


def test_arguments_are_written_as_libtpu_reads_them() -> None:
    assert rendered({"a": False, "b": 16, "c": "30m"}) == "--a=false --b=16 --c=30m"


@pytest.mark.parametrize(
    "changes",
    [{"--xla_option": 1}, {"xla_option": "1 --other=2"}, {"xla_option": ""}, {"xla_option": [1]}],
    ids=str,
)
def test_what_would_be_several_arguments_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompilerSpec(libtpu_args=changes)

"""The figures of the tutorial are those of its stack file and of a preflight by the installed compiler."""

import pytest

from tests.documents.llama_stack import llama_job, preflight
from workloads.preflight.result import preflight as compiled
from workloads.preflight_result import versions


def test_the_recorded_preflight_is_of_the_tutorials_slices_and_batch_and_of_the_installed_compiler() -> None:
    found, spec = preflight(), llama_job()
    assert found.versions == versions()
    assert (found.generation, found.topology, found.slices) == ("v6e", "4x4", 2)
    tokens = spec.training.global_batch * spec.training.sequence_length
    assert found.estimate
    assert found.estimate.seconds * found.estimate.tokens_per_second_per_chip * found.chips == pytest.approx(tokens)


@pytest.mark.complete
@pytest.mark.costs(cpu_seconds=900)
def test_the_recorded_preflight_is_what_the_compiler_finds_today() -> None:
    recorded, today = preflight(), compiled(llama_job(), print, fill_cache=False)
    assert recorded.estimate
    assert today.estimate
    assert today.estimate.seconds == pytest.approx(recorded.estimate.seconds, rel=0.01)
    assert today.needed_gib == pytest.approx(recorded.needed_gib, rel=0.01)

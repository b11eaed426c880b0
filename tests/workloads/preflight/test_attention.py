import jax
import pytest

from tests.workloads.jobs import changed
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight import topology
from workloads.preflight.topology import likely, settle
from workloads.spec import Attention, JobSpec, Kernel
from workloads.training.attention import Sequence
from workloads.training.attention_trial import Mix


def job(kernel: Attention) -> JobSpec:
    return changed(v6e_job(), training={"attention": kernel})


@pytest.mark.costs(cpu_seconds=10)
def test_auto_is_compiled_with_the_first_kernel_that_compiles_and_says_what_the_others_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("libtpu")

    def refused(projected: jax.Array, sequence: Sequence) -> jax.Array:
        raise NotImplementedError("too many heads")

    kernels: dict[Kernel, Mix] = {"fused": refused, "splash": lambda projected, sequence: 2 * projected}
    monkeypatch.setattr(topology, "candidates", lambda platform, model: kernels)
    assert settle(job("auto")) == job("splash")
    found = likely(job("auto"))
    assert found
    assert (found.kernel, found.refused) == ("splash", ("fused does not compile (too many heads)",))
    assert found.sentence.startswith("training.attention auto: compiled with splash, ")
    assert found.refused[0] in found.sentence


@pytest.mark.parametrize("kernel", ["fused", "splash-2048", "splash", "reference"])
def test_a_kernel_that_is_set_is_compiled_as_it_is(kernel: Kernel) -> None:
    assert settle(job(kernel)) == job(kernel)
    assert likely(job(kernel)) is None

"""The choice between attention kernels, with functions on a CPU in their place, and the trial's programs for TPUs."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.preflight.jobs import slices_of
from tests.workloads.training.running import ALONE
from workloads.preflight.topology import describe_devices
from workloads.progress import AttentionChanged, AttentionChosen, AttentionPassedOver, AttentionTried
from workloads.spec import JobSpec, Kernel, ModelSpec
from workloads.training import attention_trial
from workloads.training.attention import Heads, Sequence, mix_plainly
from workloads.training.attention_trial import (
    CANDIDATES,
    TOLERANCE,
    Finding,
    Layer,
    Mix,
    candidates,
    choose,
    settle,
    trial,
)
from workloads.training.kernels.attention import HeadShape, fused_attention
from workloads.training.mesh import build_mesh
from workloads.training.runtime import Processes

pytestmark = pytest.mark.costs(cpu_seconds=15)

MODEL = ModelSpec(vocab_size=8, embed_dim=16, mlp_dim=16, layers=1, query_heads=4, kv_heads=2, head_dim=16)
LAYER = Layer(MODEL, kv_heads=2, sequences=2, positions=128, dtype="bfloat16", segmented=True)


def right(projected: jax.Array, sequence: Sequence) -> jax.Array:
    by_heads = projected.reshape(projected.shape[0], -1, LAYER.rows, MODEL.head_dim, projected.shape[-1])
    return mix_plainly(jnp.swapaxes(by_heads, -1, -2), Heads.of(MODEL, "reference"), sequence)


def slow(projected: jax.Array, sequence: Sequence) -> jax.Array:
    def wait(value: np.ndarray) -> np.ndarray:
        time.sleep(0.3)
        return value

    zero = jax.pure_callback(wait, jax.ShapeDtypeStruct((), projected.dtype), jnp.zeros((), projected.dtype))
    return right(projected, sequence) + jax.lax.stop_gradient(zero)


def wrong_at_the_last_position(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, sequence).at[..., -1, :].set(0)


def wrong_gradient(projected: jax.Array, sequence: Sequence) -> jax.Array:
    mixed = right(projected, sequence)
    return 2 * mixed - jax.lax.stop_gradient(mixed)


def across_documents(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, replace(sequence, segments=None))


def not_finite(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, sequence) * jnp.nan


def refused(projected: jax.Array, sequence: Sequence) -> jax.Array:
    raise NotImplementedError("Mosaic cannot lower this\nstack of the compiler")


def findings(kernels: Mapping[Any, Mix], layer: Layer = LAYER) -> dict[str, Finding]:
    return {
        finding.kernel: finding
        for finding in trial(layer, kernels, jax.devices()[0], {"xla_backend_optimization_level": 0})
    }


def test_what_is_wrong_is_passed_over_with_how_wrong_it_is() -> None:
    found = findings(
        {
            "value": wrong_at_the_last_position,
            "gradient": wrong_gradient,
            "documents": across_documents,
            "nan": not_finite,
            "right": right,
        }
    )
    assert found.pop("right").fault == ""
    assert all("differs from plain attention by" in finding.fault for finding in found.values())


def test_what_does_not_compile_is_passed_over_with_what_the_compiler_says() -> None:
    assert findings({"refused": refused})["refused"].fault == "NotImplementedError: Mosaic cannot lower this"


def test_the_fastest_of_the_right_kernels_is_chosen() -> None:
    found = findings({"fused": wrong_gradient, "splash": slow, "splash-2048": right})
    choice = choose([*found.values()], "v6e")
    assert choice.kernel == "splash-2048"
    shared = [(type(line), getattr(line, "kernel", None)) for line in choice.lines]
    assert shared == [
        (AttentionPassedOver, "fused"),
        (AttentionTried, "splash"),
        (AttentionTried, "splash-2048"),
        (AttentionChosen, "splash-2048"),
    ]


def test_plain_attention_is_left_when_no_kernel_is_right() -> None:
    choice = choose([*findings({"fused": refused, "splash": not_finite}).values()], "v6e")
    assert choice.kernel == "reference"
    assert choice.lines[-1] == AttentionChosen("reference", "v6e", "no kernel can be used")


def test_the_comparison_is_of_blocks_as_large_as_the_job_s() -> None:
    layer = replace(LAYER, positions=8192)
    parts = {8192: 4096, 4096: 4096, 9216: 3072, 131072: 4096, 8320: 1664, 100: 100}
    assert {length: replace(layer, positions=length).part.positions for length in parts} == parts
    assert (layer.part.kv_heads, layer.part.sequences) == (1, 1)


def test_the_project_s_own_kernel_is_right_in_the_numbers_that_jobs_compute_with() -> None:
    model = MODEL.model_copy(update={"head_dim": 64})
    layer = Layer(model, kv_heads=1, sequences=1, positions=384, dtype="bfloat16", segmented=False)

    def interpreted(projected: jax.Array, sequence: Sequence) -> jax.Array:
        shape = HeadShape(1, model.queries_per_kv_head, model.head_dim)
        turn = (sequence.rotation.cos, sequence.rotation.sin)
        return fused_attention(projected, turn, sequence.segments, shape=shape, interpret=True)

    found = findings({"fused": interpreted}, layer)["fused"]
    assert found.fault == ""
    assert 0 < found.difference < TOLERANCE / 2


@dataclass(frozen=True)
class Hosts(Processes):
    """One of two hosts of two slices. `others` has the findings of the other one."""

    others: tuple[Finding, ...] = ()
    shared: dict[str, Any] = field(default_factory=dict[str, Any])

    def share(self, key: str, decide: Callable[[], Any]) -> Any:
        return decide()

    def gather(self, key: str, value: Any) -> list[Any]:
        self.shared[key] = value
        return [value, ("host-1", [vars(finding) for finding in self.others])]


def hosts(index: int, *others: Finding) -> Hosts:
    return Hosts(index, 2, f"host-{index}", others=others)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[Kernel, Mix]:
    """Replace the kernels of TPUs."""
    found: dict[Kernel, Mix] = {"fused": right, "splash": slow}
    monkeypatch.setattr(attention_trial, "candidates", lambda platform, model: found)
    return found


def settled(processes: Processes, storage: Path, **training: Any) -> attention_trial.Choice:
    heads = {"query_heads": 4, "kv_heads": 2, "head_dim": 16}
    job = changed(small_job(storage, sequence_length=128, **training), model=heads)
    return settle(job, build_mesh(job.mesh, job.slices, jax.devices()), {}, processes)


def test_a_kernel_that_is_wrong_on_one_host_is_passed_over_on_all(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    processes = hosts(0, Finding("fused", fault="wrong"), Finding("splash", 1.0, 0.01))
    choice = settled(processes, tmp_path)
    assert choice.kernel == "splash"
    assert choice.lines[0] == AttentionPassedOver("fused", "host host-1: wrong")


def test_hosts_of_other_slices_try_nothing_and_choose_the_same(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    processes = hosts(1, Finding("fused", 2.0, 0.01), Finding("splash", 1.0, 0.01))
    assert settled(processes, tmp_path).kernel == "splash"
    assert processes.shared["attention"] == ("host-1", [])


@pytest.mark.parametrize("kernel", ["fused", "splash-2048", "splash", "reference"])
def test_a_kernel_that_is_set_is_used_without_a_trial(
    kernel: Kernel, tmp_path: Path, kernels: dict[Kernel, Mix]
) -> None:
    kernels["fused"] = refused
    assert settled(ALONE, tmp_path, attention=kernel) == attention_trial.Choice(kernel)


def continued(storage: Path, kernel: Kernel) -> attention_trial.Choice:
    """Settle for a run that used `kernel` on CPU devices before."""
    folder = storage / "runs" / "run-1"
    folder.mkdir(parents=True)
    spec = small_job(storage).model_dump(mode="json")
    earlier = {"spec": spec, "data_digest": "", "attention": {"cpu": kernel, "v6e": "splash-2048"}}
    (folder / "manifest.json").write_text(json.dumps(earlier))
    (storage / "current.json").write_text(json.dumps({"run": "run-1"}))
    return settled(ALONE, storage)


def test_a_run_keeps_its_kernel_although_another_would_be_faster(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    choice = continued(tmp_path, "splash")
    assert choice.kernel == "splash"
    tried, line = choice.lines
    assert isinstance(tried, AttentionTried)
    assert line == AttentionChosen("splash", "cpu", "the run's earlier attempts used it")


def test_a_run_whose_kernel_fails_continues_with_another_and_says_so(
    tmp_path: Path, kernels: dict[Kernel, Mix]
) -> None:
    kernels["fused"] = wrong_gradient
    choice = continued(tmp_path, "fused")
    assert choice.kernel == "splash"
    assert isinstance(choice.lines[0], AttentionPassedOver)
    assert choice.lines[-1] == AttentionChanged("fused", "splash", "cpu")


def test_a_run_that_had_to_use_plain_attention_keeps_it(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    assert continued(tmp_path, "reference").kernel == "reference"


def of_chips(generation: str, topology: str, head_dim: int) -> JobSpec:
    heads = {"query_heads": 32, "kv_heads": 8, "head_dim": head_dim, "embed_dim": 2048}
    job = small_job(Path("unused"), sequence_length=8192, compute_dtype="bfloat16", global_batch=16)
    return changed(job, model=heads).model_copy(update={"slices": slices_of(generation, topology)})


@pytest.mark.complete
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("generation", "topology"), [("v6e", "2x2"), ("v5p", "2x2x1"), ("v5e", "2x2")])
def test_every_trial_compiles_for_the_chips(generation: str, topology: str, head_dim: int) -> None:
    job = of_chips(generation, topology, head_dim)
    devices = describe_devices(job.slices, job.libtpu_args)
    kernels = candidates("tpu", job.model)
    assert [*kernels] == [*CANDIDATES]
    for mix in kernels.values():
        replace(Layer.of(job), kv_heads=1, sequences=1).compiled(mix, devices[0], job.compiler_options)

"""The choice of kernels by all hosts of a job, with functions on a CPU in their place."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.training.attention_kernels import refused, right, slow, wrong_gradient
from tests.workloads.training.running import ALONE
from workloads.progress import KernelChanged, KernelChosen, KernelPassedOver, KernelTried
from workloads.spec import ExpertsSpec, Kernel
from workloads.training.attention_trial import AttentionPart, Mix
from workloads.training.expert_trial import ExpertPart
from workloads.training.kernel_choice import Choice, settle
from workloads.training.kernel_trial import Finding
from workloads.training.mesh import build_mesh
from workloads.training.runtime import Processes

pytestmark = pytest.mark.costs(cpu_seconds=10)


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
    monkeypatch.setattr(AttentionPart, "candidates", lambda self, platform: found)
    return found


def settled(processes: Processes, storage: Path, experts: ExpertsSpec | None = None, **training: Any) -> Choice:
    model = {"query_heads": 4, "kv_heads": 2, "head_dim": 16, "experts": experts}
    job = changed(small_job(storage, sequence_length=128, **training), model=model)
    return settle(job, build_mesh(job.mesh, job.slices, jax.devices()), {}, processes)


def test_a_kernel_that_is_wrong_on_one_host_is_passed_over_on_all(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    processes = hosts(0, Finding("fused", fault="wrong"), Finding("splash", 1.0, 0.01))
    choice = settled(processes, tmp_path)
    assert choice.kernels["attention"] == "splash"
    assert choice.lines[0] == KernelPassedOver("attention", "fused", "host host-1: wrong")


def test_hosts_of_other_slices_try_nothing_and_choose_the_same(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    processes = hosts(1, Finding("fused", 2.0, 0.01), Finding("splash", 1.0, 0.01))
    assert settled(processes, tmp_path).kernels["attention"] == "splash"
    assert processes.shared["attention"] == ("host-1", [])


@pytest.mark.parametrize("kernel", ["fused", "splash-2048", "splash", "reference"])
def test_a_kernel_that_is_set_is_used_without_a_trial(
    kernel: Kernel, tmp_path: Path, kernels: dict[Kernel, Mix]
) -> None:
    kernels["fused"] = refused
    assert settled(ALONE, tmp_path, attention=kernel) == Choice({"attention": kernel})


def continued(storage: Path, kernel: Kernel) -> Choice:
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
    assert choice.kernels["attention"] == "splash"
    tried, line = choice.lines
    assert isinstance(tried, KernelTried)
    assert line == KernelChosen("attention", "splash", "cpu", "the run's earlier attempts used it")


def test_a_run_whose_kernel_fails_continues_with_another_and_says_so(
    tmp_path: Path, kernels: dict[Kernel, Mix]
) -> None:
    kernels["fused"] = wrong_gradient
    choice = continued(tmp_path, "fused")
    assert choice.kernels["attention"] == "splash"
    assert isinstance(choice.lines[0], KernelPassedOver)
    assert choice.lines[-1] == KernelChanged("attention", "fused", "splash", "cpu")


def test_a_run_that_had_to_use_plain_attention_keeps_it(tmp_path: Path, kernels: dict[Kernel, Mix]) -> None:
    assert continued(tmp_path, "reference").kernels["attention"] == "reference"


def test_experts_are_chosen_for_beside_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
        return 2 * jax.lax.ragged_dot(rows, matrices, sizes)

    found = {"megablox": twice, "ragged-dot": jax.lax.ragged_dot}
    monkeypatch.setattr(ExpertPart, "candidates", lambda self, platform: found)
    choice = settled(ALONE, tmp_path, ExpertsSpec(count=4, per_token=2, balance_weight=0))
    assert choice.kernels == {"attention": "reference", "expert_products": "ragged-dot"}
    assert [(type(line), getattr(line, "kernel", None)) for line in choice.lines] == [
        (KernelPassedOver, "megablox"),
        (KernelTried, "ragged-dot"),
        (KernelChosen, "ragged-dot"),
    ]

"""`workloads.preflight.slice_step`: what one slice runs is compiled, with all that its devices hold."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

from tests.workloads.jobs import changed, validated
from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.training.running import mesh_of
from workloads.preflight import slice_step
from workloads.preflight.compilation import Compilation, Excess, Memory
from workloads.preflight.estimate import account
from workloads.preflight.preflight import compile_step, state_gib
from workloads.preflight.result import preflight
from workloads.preflight.slice_step import compile_slice
from workloads.spec import JobSpec, MeshSpec
from workloads.spec.between_slices import between_slices
from workloads.training.memory import bytes_per_device
from workloads.training.slice_program import SliceFunctions

CONTINUING = validated(v6e_job(), slice_failure="continue")
GIB = 1 << 30


@pytest.mark.costs(cpu_seconds=30)
@pytest.mark.usefixtures("compiled_quickly")
def test_the_figures_are_those_of_one_slice_s_programs_and_of_the_hosts_exchange() -> None:
    found = preflight(CONTINUING, lambda compiling: None, fill_cache=False)

    exchange = between_slices(CONTINUING, None)
    assert exchange
    assert (found.fits, found.unsupported, found.slices) == (True, None, 2)
    # Nothing crosses slices in the programs.
    assert found.dcn_sent_bytes == {"EXCHANGE": exchange.sent_bytes / 4}
    assert found.dcn_exposed_seconds == exchange.continue_seconds
    half = {"global_batch": CONTINUING.training.global_batch // 2}
    alone = changed(v6e_job(), slices={"count": 1}, mesh={"replica": 1}, training=half)
    sent = {kind: total.sent_bytes for kind, total in account(compile_step(alone).text).ici.items()}
    # The update has one sum more, for the gradient's norm.
    assert found.ici_sent_bytes == pytest.approx(sent, rel=1e-4)
    assert found.peak_gib
    assert found.peak_gib > state_gib(CONTINUING)


class Compiled:
    """Compilations that need so much memory, one after the other."""

    def __init__(self, *peaks_gib: float | Excess):
        self.left, self.texts = [*peaks_gib], ["HloModule gradients", "HloModule update"]

    def __call__(self, compile_program: Callable[[dict[str, Any]], jax.stages.Compiled]) -> Compilation:
        peak = self.left.pop(0)
        if isinstance(peak, Excess):
            return Compilation(1.0, 2.0, "", None, peak, (), ())
        return Compilation(1.0, 2.0, self.texts.pop(0), Memory(peak / 2, peak / 2, peak), None, (), ())


def functions(job: JobSpec = CONTINUING) -> SliceFunctions:
    """Return the functions of one slice on one CPU device."""
    world = job.of_one_slice.model_copy(update={"mesh": MeshSpec(replica=1, fsdp=1)})
    return SliceFunctions(world, mesh_of(world.mesh))


STATE = bytes_per_device(functions().state_shapes) / GIB
PARAMETERS = bytes_per_device(functions().state_shapes.parameters) / GIB


def test_the_optimizer_state_counts_while_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_step, "compile_for_account", Compiled(10.0, 5.0))

    found = compile_slice(CONTINUING, functions)

    assert found.memory
    assert found.memory.peak_gib == pytest.approx(10 + STATE - PARAMETERS)
    assert (found.wall_seconds, found.cpu_seconds, found.excess) == (2.0, 4.0, None)
    assert [each.what for each in found.biggest_arrays] == ["optimizer state, kept for the update"]
    assert found.text == "HloModule gradients\nHloModule update"


def test_programs_that_fit_alone_may_not_fit_next_to_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_step, "compile_for_account", Compiled(31.24, 5.0))

    found = compile_slice(CONTINUING, functions)

    assert (found.memory, found.text) == (None, "")
    assert found.excess
    assert found.excess.needed_gib == pytest.approx(31.24 + STATE - PARAMETERS)
    assert found.excess.available_gib == 31.24
    assert "GiB optimizer state, kept for the update" in found.excess.sentence


def test_gradients_that_the_compiler_refuses_are_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Excess(40.0, 31.24, "Ran out of memory")
    monkeypatch.setattr(slice_step, "compile_for_account", Compiled(refused))

    found = compile_slice(CONTINUING, functions)

    assert found.excess
    assert found.excess.sentence == "Ran out of memory"
    assert found.excess.needed_gib == pytest.approx(40 + STATE - PARAMETERS)


def test_outer_steps_hold_outer_parameters_and_momentum_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_step, "compile_for_account", Compiled(0.0, 0.0))
    outer = changed(CONTINUING, training={"sync_every": 4, "lost_rows": "next-step"})

    found = compile_slice(outer, lambda: functions(outer))

    assert found.memory
    assert found.memory.peak_gib == pytest.approx(STATE + 2 * PARAMETERS)


def test_the_programs_of_two_texts_count_together() -> None:
    done = account("HloModule one\n\nENTRY %a (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n" * 2)

    assert len(done.programs) == 2

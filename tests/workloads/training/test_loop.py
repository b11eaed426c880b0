import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from multislice_run.live_metrics import FAMILIES
from multislice_run.records.events import Cause
from multislice_run.records.ledger import LineFile
from tests.workloads.exposed import numbers
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import Capture, losses, parsed, run, stopped, trained
from workloads.progress import CheckpointSaved, Evaluation, RunStarted, RunSummary, SettingsChanged
from workloads.spec import JobSpec, Kernel, TrackersSpec
from workloads.training import loop
from workloads.training.attention import Heads, Sequence, mix_plainly
from workloads.training.attention_trial import AttentionPart, Mix
from workloads.training.checkpoint import Checkpoints
from workloads.training.failures import Diverged
from workloads.training.journal import Journal
from workloads.training.runtime import Deadline, Processes
from workloads.training.step import CompiledProgram, StepResult, TrainState
from workloads.training.step_metrics import Position, StepMetrics

pytestmark = pytest.mark.costs(cpu_seconds=30)

UNTOLD = {
    *("trainer_mfu_ratio", "trainer_hbm_used_bytes", "trainer_hbm_peak_bytes"),
    *("trainer_ends", "trainer_last_end_time_seconds"),
}
"""Metrics that a first attempt on CPU devices does not have."""


def test_a_run_reports_its_start_steps_evaluation_saves_and_end(tmp_path: Path, capsys: Capture) -> None:
    began = time.time()
    found = numbers(run(small_job(tmp_path, steps=4, evaluate_every_steps=2, attention="splash")).text())
    lines, seconds = capsys.readouterr().out.splitlines(), time.time() - began
    assert parsed(RunStarted, lines) == [RunStarted("run-1", "new", 0, 4)]
    steps = step_metrics(tmp_path)
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert {step["step"]: step["loss"] for step in steps} == losses(lines)
    assert [found.step for found in parsed(Evaluation, lines)] == [2, 4]
    assert [found.step for found in parsed(CheckpointSaved, lines)] == [4]
    assert [found.step for found in parsed(RunSummary, lines[-1:])] == [4]
    for step in steps:
        assert step["tokens_per_second"] == pytest.approx(16 * 64 / step["step_seconds"])
        assert 0 <= step["host_seconds"] < step["step_seconds"]
        assert step["gradient_norm"] > 0
    # Nothing ran on the devices while the first step was prepared.
    assert steps[0]["host_seconds"] > 0
    # CPU devices have no other kernel.
    (compiled,) = [event for event in ledger(tmp_path) if event["event"] == "compile"]
    assert (compiled["attention"], compiled["compute_dtype"]) == ("reference", "float32")
    # They have no rated peak and report no memory either, and there was no attempt before this one.
    assert {family.name for family in FAMILIES} - set(found) == UNTOLD
    assert (found["trainer_step"], found["trainer_saved_step"], found["trainer_steps_total"]) == ({"": 4},) * 3
    spent = found["trainer_seconds_total"]
    assert min(spent[cause] for cause in (Cause.PRODUCTIVE, Cause.COMPILE, Cause.EVALUATION, Cause.SAVE)) > 0
    assert sum(spent.values()) <= seconds


def test_only_the_evaluation_that_compiles_may_take_as_long_as_the_preparation(tmp_path: Path) -> None:
    expected: list[tuple[str, float]] = []

    class Recorded(Deadline):
        def expect(self, what: str, minutes: float) -> None:
            expected.append((what, minutes))
            super().expect(what, minutes)

    job = small_job(tmp_path, steps=4, evaluate_every_steps=2, evaluation_batches=2, step_timeout_minutes=7)
    run(job, Processes(0, 1, "host-0", Recorded()))
    found = [(what, minutes) for what, minutes in expected if what.startswith("evaluation")]
    first, later = "evaluation at step 2", "evaluation at step 4"
    assert found == [(first, job.training.prepare_minutes)] * 2 + [(later, 7)] * 2


class AtOnce(ThreadPoolExecutor):
    """An executor that runs everything in the caller's thread, so that nothing remains."""

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done = Future[T]()
        done.set_result(fn(*args, **kwargs))
        return done


def test_before_its_first_step_a_new_run_compiles_nothing_but_its_weights_and_the_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[set[str]] = []

    class Watched(Processes):
        def should_stop(self) -> bool:
            compiled.append(set(re.findall(r"Compiling jit\((\w+)\)", caplog.text)))
            return False

    monkeypatch.setattr(loop, "ThreadPoolExecutor", AtOnce)
    with jax.log_compiles():
        run(small_job(tmp_path), Watched(0, 1, "host-0"))
    # Optax creates its count with a conversion, which is compiled once per process.
    assert compiled[0] - {"convert_element_type"} == {"_initial", "local_step"}


def test_a_run_stopped_by_sigterm_goes_on_bitwise_where_it_was(tmp_path: Path, capsys: Capture) -> None:
    uninterrupted = losses(trained(small_job(tmp_path / "one"), capsys))
    before = losses(stopped(small_job(tmp_path / "two"), 5, capsys))
    lines = trained(small_job(tmp_path / "two"), capsys)
    assert parsed(RunStarted, lines) == [RunStarted("run-1", "resumed", 5, 8)]
    assert {**before, **losses(lines)} == uninterrupted
    again = trained(small_job(tmp_path / "two"), capsys)
    assert parsed(RunStarted, again) == [RunStarted("run-1", "already complete", 8, 8)]


def test_steps_that_a_crash_kept_out_of_storage_come_back_with_the_checkpoint(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LineFile._write  # pyright: ignore[reportPrivateUsage]

    def write_no_steps(lines: LineFile) -> None:
        if lines.path.parent.name != "steps":
            write(lines)

    with monkeypatch.context() as patched:
        patched.setattr(LineFile, "_write", write_no_steps)
        before = losses(stopped(small_job(tmp_path), 5, capsys))
    folder = tmp_path / "runs" / "run-1" / "steps"
    assert [*folder.iterdir()] == []
    after = losses(trained(small_job(tmp_path), capsys))
    found = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.open()]
    assert {step["step"]: step["loss"] for step in found} == before | after


def with_optimizer(job: JobSpec, **values: Any) -> JobSpec:
    """Return the job, which may continue with these values of the optimizer whatever it had before."""
    return changed(job, optimizer=values, storage={"allow_changes": tuple(f"optimizer.{name}" for name in values)})


def test_a_run_that_goes_on_to_another_last_step_says_what_becomes_of_the_learning_rate(
    tmp_path: Path, capsys: Capture
) -> None:
    def changes(steps: int) -> list[SettingsChanged]:
        job = with_optimizer(small_job(tmp_path, steps=steps), learning_rate=0.004, warmup_steps=2)
        return parsed(SettingsChanged, trained(job, capsys))

    assert changes(4) == []
    # It goes from the end of the cosine, a tenth of the peak, to a third of its way, after a quarter of the fall.
    expected_line = SettingsChanged(4, "training.steps 4 to 8", earlier_learning_rate=0.0004, learning_rate=0.0031)
    assert changes(8) == [expected_line]
    assert changes(8) == []
    (recorded,) = [event for event in ledger(tmp_path) if event["event"] == "settings_changed"]
    assert recorded | vars(expected_line) == pytest.approx(recorded)


def test_a_run_goes_on_with_the_learning_rate_that_it_may_change_to(tmp_path: Path, capsys: Capture) -> None:
    def job(storage: Path, **values: Any) -> JobSpec:
        return with_optimizer(small_job(storage, evaluate_every_steps=5), warmup_steps=0, weight_decay=0.0, **values)

    uninterrupted = trained(job(tmp_path / "one"), capsys)
    before = losses(stopped(job(tmp_path / "two"), 5, capsys))
    assert before == {step: loss for step, loss in losses(uninterrupted).items() if step <= 5}
    lines = trained(job(tmp_path / "two", learning_rate=1e-30), capsys)
    assert parsed(RunStarted, lines) == [RunStarted("run-1", "resumed", 5, 8)]
    (expected_line,) = parsed(SettingsChanged, lines)
    assert (expected_line.step, expected_line.changes) == (5, "optimizer.learning_rate 0.003 to 1e-30")
    # Weights and data of the first step are bitwise equal. After it, no weight changes.
    assert losses(lines)[6] == losses(uninterrupted)[6]
    assert losses(lines)[7] != losses(uninterrupted)[7]
    at_the_change, _ = parsed(Evaluation, uninterrupted)
    (at_the_end,) = parsed(Evaluation, lines)
    assert (at_the_change.step, at_the_end.step) == (5, 8)
    assert at_the_end.loss == at_the_change.loss


def step_metrics(storage: Path) -> list[dict[str, Any]]:
    (path,) = (storage / "runs" / "run-1" / "steps").iterdir()
    return [json.loads(line) for line in path.open()]


def test_a_run_saves_by_time_between_the_steps_of_its_schedule_and_reports_each_save_before_the_next_one_begins(
    tmp_path: Path,
) -> None:
    run(small_job(tmp_path, steps=4, save_every_steps=4, save_every_minutes=1e-6, keep_checkpoints=9))
    events = [(event["event"], event["step"]) for event in ledger(tmp_path) if "step" in event]
    assert [event for event in events if event[0] in ("save", "checkpoint_saved")] == [
        pair for step in range(1, 5) for pair in (("save", step), ("checkpoint_saved", step))
    ]


def ledger(storage: Path) -> list[dict[str, Any]]:
    """Return the events of all attempts."""
    return [
        json.loads(line)
        for path in sorted(storage.glob("runs/*/ledger/*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_a_run_records_the_attention_kernel_that_its_trial_chose_and_keeps_it(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def right(projected: jax.Array, sequence: Sequence) -> jax.Array:
        batch, _, positions = projected.shape
        by_heads = projected.reshape(batch, -1, heads.queries_per_kv_head + 2, heads.head_dim, positions)
        return mix_plainly(by_heads.swapaxes(-1, -2), heads, sequence)

    def refused(projected: jax.Array, sequence: Sequence) -> jax.Array:
        raise NotImplementedError("too many heads")

    kernels: dict[Kernel, Mix] = {"fused": refused, "splash": right}
    heads = Heads.of(small_job(tmp_path).model, "reference")
    monkeypatch.setattr(AttentionPart, "candidates", lambda self, platform: kernels)
    stopped(small_job(tmp_path, steps=2), 1, capsys)
    kernels |= {"fused": right, "splash": refused}
    run(small_job(tmp_path, steps=2))
    events = [(event["event"], event["kernel"]) for event in ledger(tmp_path) if "kernel" in event]
    first = [("kernel_passed_over", "fused"), ("kernel_tried", "splash"), ("kernel_chosen", "splash")]
    assert events[:3] == first
    assert events[3] == ("kernel_passed_over", "splash")
    assert events[-1] == ("kernel_changed", "fused")
    assert json.loads((tmp_path / "runs/run-1/manifest.json").read_text())["attention"] == {"cpu": "fused"}


def test_steps_that_are_not_finite_are_skipped_until_there_are_too_many(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(
        Diverged, match=r"step 5: .* 4 steps in a row was not finite or too large, after 0 of at most 0 rollbacks; set"
    ):
        # The first step makes the weights so large that no later loss is finite.
        run(changed(small_job(tmp_path, max_skipped_steps=3), optimizer={"learning_rate": 1e38, "warmup_steps": 0}))
    steps = step_metrics(tmp_path)
    assert [step["skipped"] for step in steps] == [False, True, True, True, True]
    assert [step["gradient_norm"] is None for step in steps] == [False, True, True, True, True]
    assert capsys.readouterr().out.count("the step is skipped and changes nothing") == 4


def test_a_step_with_too_large_a_gradient_is_skipped_and_recorded(tmp_path: Path, capsys: Capture) -> None:
    run(small_job(tmp_path / "all", steps=4))
    norms = sorted(step["gradient_norm"] for step in step_metrics(tmp_path / "all"))
    limit = (norms[0] + norms[-1]) / 2
    capsys.readouterr()
    lines = trained(changed(small_job(tmp_path / "limited", steps=4), optimizer={"skip_norm": limit}), capsys)
    steps = step_metrics(tmp_path / "limited")
    assert [step["skipped"] for step in steps] == [step["gradient_norm"] > limit for step in steps]
    skipped = steps[-1]["skipped_steps"]
    assert skipped > 0
    assert sum("the step is skipped" in line for line in lines) == skipped
    warnings = [event for event in ledger(tmp_path / "limited") if event["event"] == "warning"]
    assert sum("job.optimizer.skip_norm" in event["message"] for event in warnings) == skipped


def test_the_curves_of_a_run_go_to_tensorboard_only_if_its_job_asks_for_it(tmp_path: Path, capsys: Capture) -> None:
    job = small_job(tmp_path, steps=4, z_loss=1e-3)
    stopped(job, 2, capsys)
    assert not (tmp_path / "runs/run-1/tensorboard").exists()
    run(job.model_copy(update={"trackers": TrackersSpec(tensorboard=True)}))
    curves = EventAccumulator(str(tmp_path / "runs/run-1/tensorboard")).Reload()
    expected_line = json.loads((tmp_path / "runs/run-1/steps/1-0.jsonl").read_text().splitlines()[-1])
    for name in ("loss", "z_loss", "gradient_norm"):
        points = curves.Scalars(name)
        assert [point.step for point in points] == [3, 4]
        assert points[-1].value == pytest.approx(expected_line[name])
    assert expected_line["z_loss"] > 0
    assert [point.step for point in curves.Scalars("held_out_loss")] == [4]


def test_the_steps_asked_for_are_profiled(tmp_path: Path) -> None:
    run(small_job(tmp_path, steps=4, profile_steps=(2, 3)))
    session = tmp_path / "runs" / "run-1" / "profiles" / "plugins" / "profile" / "0-2-3"
    assert (session / "00000-host-0.xplane.pb").stat().st_size > 0


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a run does with the devices and with the results of its steps, in order."""
    done: list[str] = []

    def note(owner: type, name: str, words: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            done.append(words(*given, **named))
            return real(*given, **named)

        monkeypatch.setattr(owner, name, noted)

    note(Journal, "begin_step", lambda _, before, result: f"give {before.step + 1}")
    note(StepMetrics, "add", lambda _, before, *rest: f"judge {before.step + 1}")
    note(Checkpoints, "save", lambda _, step, *rest: f"save {step}")
    note(loop.Training, "_go_back", lambda *_: "go back")
    note(CompiledProgram, "evaluate", lambda *_: "evaluate")
    return done


class Late:
    """A loss that cannot be read before the devices have got the next step."""

    def __init__(self, loss: jax.Array, next_is_given: threading.Event):
        self._loss = loss
        self._next_is_given = next_is_given

    def __float__(self) -> float:
        assert self._next_is_given.wait(timeout=20), "the next step waits for this one's result"
        return float(self._loss)


def test_a_step_is_given_to_the_devices_before_the_result_of_the_one_before_it_is_read(
    tmp_path: Path, capsys: Capture, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, given = CompiledProgram.step, defaultdict[int, threading.Event](threading.Event)
    numbers = iter(range(1, 5))

    def step(program: CompiledProgram, state: TrainState, batch: jax.Array) -> tuple[TrainState, StepResult]:
        state, result = real(program, state, batch)
        number = next(numbers)
        given[number].set()
        late: Any = Late(result.loss, given[number + 1])
        return state, result if number == 4 else replace(result, loss=late)

    expected = losses(trained(small_job(tmp_path / "one", steps=4), capsys))
    order.clear()
    monkeypatch.setattr(CompiledProgram, "step", step)
    found = losses(trained(small_job(tmp_path / "two", steps=4), capsys))
    assert found == expected
    between = [word for number in range(2, 5) for word in (f"give {number}", f"judge {number - 1}")]
    assert order == ["give 1", *between, "judge 4", "save 4", "evaluate"]


def test_a_state_is_evaluated_and_saved_after_its_step_is_judged_and_before_the_next_uses_it_up(
    tmp_path: Path, order: list[str]
) -> None:
    run(small_job(tmp_path, steps=4, save_every_steps=2, evaluate_every_steps=3))
    first = ["give 1", "give 2", "judge 1", "judge 2", "save 2", "give 3", "judge 3", "evaluate"]
    assert order == [*first, "give 4", "judge 4", "save 4", "evaluate"]


def test_sigterm_saves_the_state_of_a_step_that_is_judged(tmp_path: Path, capsys: Capture, order: list[str]) -> None:
    stopped(small_job(tmp_path), 3, capsys)
    assert order == ["give 1", "give 2", "judge 1", "give 3", "judge 2", "judge 3", "save 3"]


def test_a_step_that_may_be_the_last_before_a_rollback_is_judged_before_another_is_given(
    tmp_path: Path, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Journal.begin_step

    def spoilt(journal: Journal, before: Position, result: StepResult) -> Any:
        bad = 5 <= before.batch <= 7
        return begun(journal, before, replace(result, skipped=result.skipped | bad))

    monkeypatch.setattr(Journal, "begin_step", spoilt)
    # The save at step 8 falls on a skipped step, so it must wait.
    run(small_job(tmp_path, steps=9, save_every_steps=4, max_skipped_steps=2, max_rollbacks=1))
    until = ["give 5", "give 6", "judge 5", "give 7", "judge 6", "give 8", "judge 7", "judge 8", "go back"]
    after = [*until[:-1], "save 8", "give 9", "judge 9", "save 9"]
    assert order[order.index("save 4") :] == ["save 4", *until, *after, "evaluate"]

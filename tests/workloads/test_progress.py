import struct

from hypothesis import given
from hypothesis import strategies as st

from workloads.progress import (
    CheckpointSaved,
    CheckpointSkipped,
    Evaluation,
    FewerSlices,
    LocalCheckpointSkipped,
    LocalCheckpointWritten,
    RestoredLocally,
    RolledBack,
    RunStarted,
    RunSummary,
    SettingsChanged,
    StepProgress,
)

counts = st.integers(0, 10**9)
losses = st.floats(allow_nan=False, width=32)
words = st.text(st.characters(categories=["L", "N"], include_characters="-/:."), min_size=1)


@given(counts, counts, losses, st.floats(0, 1e9), st.floats(0, 1e6))
def test_a_step_line_reads_back_with_the_same_bits_of_loss(
    step: int, steps: int, loss: float, tokens_per_second: float, step_ms: float
) -> None:
    line = StepProgress(step, steps, loss, tokens_per_second, step_ms).line()
    read = StepProgress.parse(line)
    assert read is not None
    assert (read.step, read.steps, read.line()) == (step, steps, line)
    assert struct.pack("d", read.loss) == struct.pack("d", loss)


@given(words, counts, losses, st.floats(0, 1e6))
def test_every_line_reads_back_as_its_own_kind_only(run: str, step: int, loss: float, seconds: float) -> None:
    records = (
        RunStarted(run, "resumed", step, step + 1),
        RunStarted(run, "already complete", step, step),
        StepProgress(step, step + 1, loss, 1.0, 2.0),
        Evaluation(step, loss),
        CheckpointSaved(step, f"gs://bucket/runs/{run}/checkpoints"),
        CheckpointSkipped(step, f"gs://bucket/runs/{run}/unusable", "process 3: ValueError: [0, 1): a; b"),
        FewerSlices(1, 2, 2, step, 3),
        LocalCheckpointWritten(step, 12.0, 3.5, 400.0),
        LocalCheckpointSkipped(step, "process 3: ValueError: [0, 1): a; b"),
        RestoredLocally(step, 3, 4, step + 9),
        SettingsChanged(step, "training.steps 4 to 9, optimizer.learning_rate 0.003 to 0.001", 0.0003, 3e-05),
        RolledBack(1, 2, step + 9, step, step, step + 8),
        RunSummary(run, step, loss, round(seconds, 1)),
    )
    kinds = {type(record) for record in records}
    for record in records:
        for kind in kinds:
            assert kind.parse(record.line() + "\n") == (record if isinstance(record, kind) else None)


def test_other_output_is_no_progress() -> None:
    noise = "[Gloo] Rank 0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"
    assert StepProgress.parse(noise) is None
    assert StepProgress.parse("step one/2 loss 1.0 tokens/s 1 step_ms 1.0") is None

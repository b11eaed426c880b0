"""Formats and parses the lines that the leading host prints.

Each kind of line is a frozen record with `line()` and `parse(line)`, so that readers of a leader's log (the command
line, the live view of the sandbox, the tests) use the trainer's format. It imports nothing heavy. Losses are printed
with `repr`, so equal lines mean bitwise equal losses.
"""

import re
from dataclasses import dataclass, fields
from string import Formatter
from typing import Any, ClassVar, Literal, Self

Outcome = Literal["new", "resumed", "already complete"]
"""What an attempt found: no checkpoint, a checkpoint to continue from, or a finished run."""


_READERS: dict[Any, tuple[type, str]] = {int: (int, r"-?\d+"), float: (float, r"-?(?:\d[\d.e+-]*|inf|nan)")}
"""Parser and pattern of a field, by its type. All others are text."""


@dataclass(frozen=True)
class Line:
    """Base of the records. `template` is used for printing and for parsing."""

    template: ClassVar[str]

    def line(self) -> str:
        return self.template.format(**vars(self))

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Return the record in `line`. `None` if it is another kind of line."""
        readers: dict[str, Any] = {field.name: _READERS.get(field.type, (str, ".+")) for field in fields(cls)}
        pattern = "".join(
            re.escape(text) + (f"(?P<{name}>{readers[name][1]})" if name else "")
            for text, name, _, _ in Formatter().parse(cls.template)
        )
        found = re.fullmatch(pattern, line.rstrip("\n"))
        return found and cls(**{name: readers[name][0](text) for name, text in found.groupdict().items()})


@dataclass(frozen=True)
class RunStarted(Line):
    """The run that this attempt works on, and its first step."""

    template: ClassVar[str] = "run {run}: {outcome} at step {step} of {steps}"

    run: str
    outcome: Outcome
    step: int
    steps: int


@dataclass(frozen=True)
class FewerSlices(Line):
    """This attempt runs on fewer slices than the job has, with the same global batch."""

    template: ClassVar[str] = (
        "on {slices} of {asked} slices: accumulation {accumulation} keeps the global batch of {global_batch} sequences,"
        " padding rows: {padding_rows}"
    )

    slices: int
    asked: int
    accumulation: int
    global_batch: int
    padding_rows: int
    """Number of rows of a step in addition to the global batch, so that every device has equally many."""


@dataclass(frozen=True)
class KernelTried(Line):
    """A kernel that computes correctly on this job's chips."""

    template: ClassVar[str] = (
        "{part} kernel {kernel}: {milliseconds:.3f} ms for a layer, forward and backward;"
        " it differs from plain arithmetic by {difference:.4f}"
    )

    part: str
    """Part of a layer that it computes: `attention` or `expert products`."""
    kernel: str
    milliseconds: float
    difference: float


@dataclass(frozen=True)
class KernelPassedOver(Line):
    """A kernel that this job cannot use."""

    template: ClassVar[str] = "{part} kernel {kernel} is passed over: {reason}"

    part: str
    kernel: str
    reason: str


@dataclass(frozen=True)
class KernelChosen(Line):
    """The kernel that a setting `auto` chose."""

    template: ClassVar[str] = "{part} kernel {kernel} is used on {chips}: {reason}"

    part: str
    kernel: str
    chips: str
    """Generation of the TPU."""
    reason: str


@dataclass(frozen=True)
class KernelChanged(Line):
    """A run continues with another kernel than before on chips of the same kind."""

    template: ClassVar[str] = (
        "WARNING: the run used {part} kernel {earlier} on {chips} and cannot use it any more; it continues with"
        " {kernel}, so its losses from here on are not bit by bit those of an uninterrupted run"
    )

    part: str
    earlier: str
    kernel: str
    chips: str


@dataclass(frozen=True)
class SettingsChanged(Line):
    """A run continues with another last step or other optimizer settings than those of its checkpoint."""

    template: ClassVar[str] = (
        "changed since the checkpoint at step {step}: {changes}; the learning rate of the next step is"
        " {learning_rate:.4g}, and would have been {earlier_learning_rate:.4g}"
    )

    step: int
    changes: str
    """Settings with their earlier and their new values."""
    earlier_learning_rate: float
    """Learning rate that the step after `step` would have had without the changes."""
    learning_rate: float


@dataclass(frozen=True)
class StepProgress(Line):
    """One finished optimizer step."""

    template: ClassVar[str] = "step {step}/{steps} loss {loss!r} tokens/s {tokens_per_second:.0f} step_ms {step_ms:.1f}"

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    step_ms: float


@dataclass(frozen=True)
class Evaluation(Line):
    """Loss on the held-out text after `step` steps."""

    template: ClassVar[str] = "evaluation at step {step} loss {loss!r}"

    step: int
    loss: float


@dataclass(frozen=True)
class CheckpointSaved(Line):
    """A checkpoint that is complete in storage."""

    template: ClassVar[str] = "checkpoint at step {step} saved to {folder}"

    step: int
    folder: str


@dataclass(frozen=True)
class CheckpointSkipped(Line):
    """A checkpoint that could not be used. Training continues from the one before it."""

    template: ClassVar[str] = "checkpoint at step {step} cannot be used: {reason}; moved to {folder}"

    step: int
    folder: str
    reason: str


@dataclass(frozen=True)
class LocalCheckpointWritten(Line):
    """Cost of the first local checkpoint of an attempt, on the leading host."""

    template: ClassVar[str] = (
        "local checkpoint at step {step}: {mib:.0f} MiB in the memory of this pod; the devices waited"
        " {waited_ms:.1f} ms, and writing in the background took {write_ms:.1f} ms"
    )

    step: int
    mib: float
    waited_ms: float
    write_ms: float


@dataclass(frozen=True)
class RestoredLocally(Line):
    """The state that an attempt continues from was in the memory of the pods."""

    template: ClassVar[str] = (
        "step {step} is restored from the memory of {hosts} of {of_hosts} pods; the newest checkpoint is of step"
        " {saved}"
    )

    step: int
    hosts: int
    """Number of hosts whose pods held an undamaged part of it."""
    of_hosts: int
    saved: int
    """Step of the newest checkpoint in storage. 0: there is none."""


@dataclass(frozen=True)
class LocalCheckpointSkipped(Line):
    """A state in the memory of the pods that could not be used, or a part of it."""

    template: ClassVar[str] = "local checkpoint at step {step} cannot be used: {reason}"

    step: int
    reason: str


@dataclass(frozen=True)
class RolledBack(Line):
    """A rollback after too many skipped steps in a row. Training continues from an earlier step with later data."""

    template: ClassVar[str] = (
        "rollback {number} of {most}: after step {from_step} back to step {step},"
        " batches {first_left_out} to {last_left_out} are left out"
    )

    number: int
    """Number of the rollback in this attempt, from 1."""
    most: int
    from_step: int
    step: int
    first_left_out: int
    """First batch that is left out. Batches are numbered from 0."""
    last_left_out: int


@dataclass(frozen=True)
class RunSummary(Line):
    """The last line of a run that reached its last step."""

    template: ClassVar[str] = "run {run} finished at step {step}: evaluation loss {evaluation_loss!r}, {seconds:.1f} s"

    run: str
    step: int
    evaluation_loss: float
    seconds: float


@dataclass(frozen=True)
class FunctionBegins(Line):
    """The output of the host after this line is its function's."""

    template: ClassVar[str] = "call {call}: the function begins"

    call: str


@dataclass(frozen=True)
class FunctionEnded(Line):
    """The output of the host after this line is no longer its function's."""

    template: ClassVar[str] = "call {call}: the function has ended"

    call: str

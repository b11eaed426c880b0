"""Finds slices that train a preset on a number of tokens within a number of days, their cost, and their limits.

The table `preflights.jsonl` contains training steps that were compiled for TPU slices; `benchmarks.compiled_steps`
writes it. Nothing in it was measured on a TPU: seconds are estimates, bytes and memory are those of the program.

With another number of slices each chip does the same work, so the batch grows with the slices, and a step differs only
by the time that it waits for other slices. Their bytes are assumed to travel around a ring at the rate of the hosts'
network interfaces. Bytes beyond those of the compiled program are assumed not to overlap with compute. Not modelled:
latency, unequal slices, and pauses for evaluation, checkpoints, restarts and capacity."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from infra.tpu import SliceShape, generation_names, resolve
from workloads.preflight_result import QUOTED_EFFICIENCY, StepEstimate
from workloads.spec import Attention, PositiveInt, Remat, Spec, load_preset

TABLE = Path(__file__).parent / "preflights.jsonl"
ATTENTION: Attention = "splash"
"""The attention kernel of every design. `auto` uses a faster one if available."""


class Design(Spec):
    """One way to run a preset: weights sharded over a slice, slices data parallel, no gradient accumulation."""

    preset: str
    generation: str
    topology: str
    slices: PositiveInt
    sequences_per_chip: PositiveInt
    remat: Remat
    sequence_length: PositiveInt
    attention: Attention

    @classmethod
    def parse(cls, written: str) -> Self:
        """Return the design `PRESET:GENERATION:TOPOLOGY:SLICES:SEQUENCES_PER_CHIP:REMAT`; other values are the
        preset's.

        Raises:
            ValueError: the text is not a design.
        """
        names = ("preset", "generation", "topology", "slices", "sequences_per_chip", "remat")
        words = written.split(":")
        if len(words) != len(names):
            raise ValueError(f"{written!r} is not a design; write {':'.join(names).upper()}")
        training = load_preset(words[0]).training
        named = {name: int(word) if word.isdecimal() else word for name, word in zip(names, words, strict=True)}
        return cls.model_validate(named | {"sequence_length": training.sequence_length, "attention": ATTENTION})

    @property
    def kind(self) -> str:
        return f"{self.generation} {self.topology}"

    @property
    def words(self) -> str:
        """Description of a chip's work, as text."""
        return f"{self.kind} with sequences_per_chip {self.sequences_per_chip}, remat {self.remat}"

    def __str__(self) -> str:
        words = (self.preset, self.generation, self.topology, self.slices, self.sequences_per_chip, self.remat)
        return ":".join(map(str, words))


class CompiledStep(Spec):
    """A step that fits, per device."""

    steps: tuple[StepEstimate, ...]
    """Estimates by the efficiency of attention kernels. Transfers between slices count as hidden."""
    ici_sent_bytes: dict[str, float]
    dcn_sent_bytes: dict[str, float]
    dcn_seconds: float
    """Seconds of all transfers to other slices if nothing else ran."""
    dcn_exposed_seconds: float
    """Part of these seconds in which the program waits."""

    def at(self, kernel_efficiency: float) -> StepEstimate:
        """Return the estimate for kernels that reach this share of the peak."""
        return next(step for step in self.steps if step.kernel_efficiency == kernel_efficiency)

    @property
    def quoted(self) -> StepEstimate:
        """Return the estimate that is quoted as the step time."""
        return self.at(QUOTED_EFFICIENCY)


class Row(Spec):
    """One compilation."""

    design: Design
    compiled_on: date
    versions: dict[str, str]
    """Versions of packages that affect the program. A row with other versions is stale."""
    needed_gib: float | None
    """Peak GiB per device. `None` if the step does not fit and the compiler did not report its size."""
    usable_gib: float
    step: CompiledStep | None
    """The compiled step. `None` if it does not fit."""
    compile_cpu_seconds: float


def read_rows(text: str) -> tuple[Row, ...]:
    """Return the rows of the table `text`, keeping only the newest row of each design."""
    found = [Row.model_validate_json(line) for line in text.splitlines()]
    return tuple({row.design: row for row in found}.values())


@dataclass(frozen=True)
class ScaledStep:
    """A design that fits, on any number of slices."""

    design: Design
    step: CompiledStep

    @cached_property
    def shape(self) -> SliceShape:
        return resolve(self.design.generation, self.design.topology)

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step on one slice."""
        return self.shape.chips * self.design.sequences_per_chip * self.design.sequence_length

    def most_slices(self, most_batch_tokens: int) -> int:
        """Return the largest number of slices that batch and design allow; 0 if one slice is too many."""
        allowed = most_batch_tokens // self.batch_tokens
        # A program for one slice has no transfers to others.
        joined = self.shape.multi_host and self.design.slices > 1
        return allowed if joined else min(allowed, 1)

    def exposed_seconds(self, slices: int) -> float:
        """Return an upper bound of the time that a step waits for other slices."""
        if slices == 1:
            return 0.0
        return max(0.0, self.step.dcn_exposed_seconds + self.sum_seconds(slices) - self.step.dcn_seconds)

    def sum_seconds(self, slices: int) -> float:
        """Return the seconds of all transfers between slices, if nothing else ran.

        In a ring of n, each sends 2 (n - 1) / n of what it reduces. The hosts send as much with `slice_failure:
        continue`.
        """
        return 0.0 if slices == 1 else self.step.dcn_seconds * (1 - 1 / slices) / (1 - 1 / self.design.slices)

    def seconds(self, slices: int, kernel_efficiency: float = QUOTED_EFFICIENCY) -> float:
        return self.step.at(kernel_efficiency).seconds + self.exposed_seconds(slices)


type PriceOf = Callable[[str], float | None]
"""Returns US dollars per chip-hour of a generation; `None` if unknown."""
Binding = Literal["HBM", "DCN", "batch", "one host"]
"""What limits an option:

    HBM       one more sequence on each device does not fit
    DCN       the step waits for other slices longer than the goal allows
    batch     one more slice would exceed the goal's batch
    one host  slices of a single host cannot be joined
"""
Order = Literal["dollars", "days"]
_TABLE_COMMAND = "python -m benchmarks.compiled_steps"
# https://github.com/AI-Hypercomputer/tpu-recipes: steps of 7.318, 7.793 and 8.390 s on 1, 2 and 4 slices.
_PUBLISHED_SCALING = "published runs lose more: Gemma 3 12B on v6e 16x16 kept 94% of its speed on 2 slices, 87% on 4"
_SECONDS_PER_DAY, _HOURS_PER_DAY = 86400, 24


class Goal(Spec):
    """Target of the plan."""

    preset: str
    tokens: Annotated[float, Field(gt=0, le=1e18)]
    days: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    most_batch_tokens: PositiveInt = 1024 * 8192
    """Largest batch, in tokens, that still saves steps. It depends on model and data. The default is that of Llama 3
    405B up to 2.87 trillion tokens (https://arxiv.org/abs/2407.21783, section 3.4.1)."""
    most_dcn_share: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of a step spent waiting for other slices above which DCN counts as a limit."""


class Option(Spec):
    """Slices of one kind. All seconds and days are estimates."""

    slices: PositiveInt
    chips: PositiveInt
    compiled: Design
    """Basis of the estimate, possibly with another number of slices."""
    batch_tokens: PositiveInt
    steps: PositiveInt
    step_seconds: float
    dcn_exposed_seconds: float
    """Part of the step in which it waits for other slices."""
    dcn_seconds: float
    """Seconds of all transfers between slices. The rest of them overlaps with compute."""
    continue_more_seconds: float
    """Seconds that a step takes longer with `slice_failure: continue`, with which nothing overlaps."""
    mfu: float
    days: float
    fastest_days: float
    """Days with the best assumed efficiency of attention kernels."""
    slowest_days: float
    in_time: bool
    usd_per_chip_hour: float | None
    usd: float | None
    """Cost in US dollars. `None` if the price is unknown."""
    binds: tuple[Binding, ...]


class Plan(Spec):
    """The options that reach a goal, and those that would take longer."""

    goal: Goal
    options: tuple[Option, ...]
    """For each kind of slices: the fewest that are in time, every power of two, and the most. The cheapest comes
    first."""
    notes: tuple[str, ...]
    """Basis of the estimates, designs that do not fit, and designs that are not compiled yet."""

    def kinds(self) -> tuple[tuple[Option, ...], ...]:
        """Return the options by kind of slices, each in ascending number of slices."""
        grouped: dict[str, list[Option]] = {}
        for option in sorted(self.options, key=lambda each: each.slices):
            grouped.setdefault(option.compiled.kind, []).append(option)
        return tuple(map(tuple, grouped.values()))

    def answers(self, order: Order) -> tuple[Option, ...]:
        """Return for each kind of slices the fewest that reach the goal, and the most. The best comes first."""
        reached = [[option for option in options if option.in_time] for options in self.kinds()]
        ends = [option for options in reached for option in (*options[:1], *options[1:][-1:])]
        return _sort(ends, order)

    def nearest(self, order: Order) -> tuple[Option, ...]:
        """Return for each kind of slices the option with the most slices, in time or not."""
        return _sort([options[-1] for options in self.kinds()], order)


def plan(rows: Sequence[Row], goal: Goal, price_of: PriceOf) -> Plan:
    """Return the slices that reach the goal, and those that would take longer.

    Raises:
        ValueError: the table has no design of the preset that fits.
    """
    ours = [row for row in rows if row.design.preset == goal.preset]
    gaps = (*_unfit(ours), *_unknown(goal.preset, ours))
    grouped: dict[SliceShape, list[ScaledStep]] = {}
    for scaled in _scale(ours):
        grouped.setdefault(scaled.shape, []).append(scaled)
    if not grouped:
        raise ValueError("; ".join(gaps))
    options = [
        _option(_fastest(slices, group, goal), slices, goal, price_of(shape.generation), ours)
        for shape, group in grouped.items()
        for slices in {count for scaled in group for count in _counts(scaled, goal)}
    ]
    return Plan(goal=goal, options=_sort(options, "dollars"), notes=(*_notes(goal, ours), *gaps))


def _sort(options: Iterable[Option], order: Order) -> tuple[Option, ...]:
    """Return the options in this order, the cheapest or fastest first, with unknown prices last."""

    def place(option: Option) -> tuple[float, float]:
        dollars = inf if option.usd is None else option.usd
        return (dollars, option.days) if order == "dollars" else (option.days, dollars)

    return tuple(sorted(options, key=place))


def _scale(rows: Iterable[Row]) -> list[ScaledStep]:
    return [ScaledStep(row.design, row.step) for row in rows if row.step]


def _counts(scaled: ScaledStep, goal: Goal) -> set[int]:
    """Return the numbers of slices to consider."""
    most = scaled.most_slices(goal.most_batch_tokens)
    doubled = {1 << power for power in range(most.bit_length())}
    late = bisect_left(range(1, most + 1), True, key=lambda count: _days(scaled, goal, count) <= goal.days)
    return {*doubled, most, min(late + 1, most)} - {0}


def _days(scaled: ScaledStep, goal: Goal, slices: int, kernel_efficiency: float = QUOTED_EFFICIENCY) -> float:
    steps = ceil(goal.tokens / (slices * scaled.batch_tokens))
    return steps * scaled.seconds(slices, kernel_efficiency) / _SECONDS_PER_DAY


def _fastest(slices: int, group: Iterable[ScaledStep], goal: Goal) -> ScaledStep:
    """Return the fastest of several designs on the same slices. All of them cost the same."""
    able = [scaled for scaled in group if slices <= scaled.most_slices(goal.most_batch_tokens)]
    return min(able, key=lambda scaled: _days(scaled, goal, slices))


def _option(
    scaled: ScaledStep, slices: int, goal: Goal, usd_per_chip_hour: float | None, rows: Sequence[Row]
) -> Option:
    chips, batch_tokens = slices * scaled.shape.chips, slices * scaled.batch_tokens
    days, seconds, quoted = _days(scaled, goal, slices), scaled.seconds(slices), scaled.step.quoted
    efficiencies = [step.kernel_efficiency for step in scaled.step.steps]
    return Option(
        slices=slices,
        chips=chips,
        compiled=scaled.design,
        batch_tokens=batch_tokens,
        steps=ceil(goal.tokens / batch_tokens),
        step_seconds=seconds,
        dcn_exposed_seconds=scaled.exposed_seconds(slices),
        dcn_seconds=scaled.sum_seconds(slices),
        continue_more_seconds=scaled.sum_seconds(slices) - scaled.exposed_seconds(slices),
        mfu=quoted.mfu * quoted.seconds / seconds,
        days=days,
        fastest_days=_days(scaled, goal, slices, max(efficiencies)),
        slowest_days=_days(scaled, goal, slices, min(efficiencies)),
        in_time=days <= goal.days,
        usd_per_chip_hour=usd_per_chip_hour,
        usd=None if usd_per_chip_hour is None else usd_per_chip_hour * chips * days * _HOURS_PER_DAY,
        binds=tuple(_binds(scaled, slices, goal, rows)),
    )


def _binds(scaled: ScaledStep, slices: int, goal: Goal, rows: Sequence[Row]) -> Iterator[Binding]:
    following = _next_larger(scaled.design, rows)
    if following and not following.step:
        yield "HBM"
    if scaled.exposed_seconds(slices) > goal.most_dcn_share * scaled.seconds(slices):
        yield "DCN"
    if (slices + 1) * scaled.batch_tokens > goal.most_batch_tokens:
        yield "batch"
    if not scaled.shape.multi_host:
        yield "one host"


def _next_larger(design: Design, rows: Iterable[Row]) -> Row | None:
    """Return the same design with one more sequence per device, if it was compiled."""
    larger = design.sequences_per_chip + resolve(design.generation, design.topology).devices_per_chip
    wanted = design.model_copy(update={"sequences_per_chip": larger})
    return next((row for row in rows if row.design == wanted), None)


def _notes(goal: Goal, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the basis of the options, and the gaps of the table."""
    fitting = [row for row in rows if row.step]
    versions = sorted({f"{package} {version}" for row in fitting for package, version in row.versions.items()})
    days = " to ".join(sorted({str(pick(row.compiled_on for row in fitting)) for pick in (min, max)}))
    yield (
        f"estimates, from steps compiled with {', '.join(versions)} on {days};"
        f" attention kernels are assumed to reach {QUOTED_EFFICIENCY:.0%} of a chip's peak"
    )
    yield (
        "other numbers of slices than compiled: each chip does the same work, and additional transfers between slices"
        f" are assumed not to overlap with compute; {_PUBLISHED_SCALING}"
    )
    yield (
        f"batch: at most {goal.most_batch_tokens:,} tokens per step; DCN is a limit if the step waits for it more than"
        f" {goal.most_dcn_share:.0%} of its time"
    )
    yield "not included: evaluation, checkpoints, restarts, waiting for capacity, costs other than chips"
    if untried := [row.design.words for row in fitting if not _next_larger(row.design, rows)]:
        yield f"not tried with one more sequence: {', '.join(untried)}"
    if large := [scaled for scaled in _scale(rows) if not scaled.most_slices(goal.most_batch_tokens)]:
        words = ", ".join(f"{scaled.design.words} ({scaled.batch_tokens:,})" for scaled in large)
        yield f"more tokens per step on one slice than the batch allows: {words}"


def _unknown(preset: str, ours: Sequence[Row]) -> Iterator[str]:
    known = {row.design.generation for row in ours}
    if missing := [name for name in generation_names() if name not in known]:
        form = f"{preset}:GENERATION:TOPOLOGY:2:SEQUENCES_PER_CHIP:REMAT"
        yield f"no preflight of {preset} on {', '.join(missing)} yet: run {_TABLE_COMMAND} {form}"


def _unfit(ours: Sequence[Row]) -> Iterator[str]:
    for row in ours:
        if not row.step:
            needed = "more" if row.needed_gib is None else f"{row.needed_gib:.1f} GiB"
            yield f"{row.design.words} does not fit: needs {needed}, has {row.usable_gib:.1f} GiB per device"

"""`multislice plan` lists the slices that train a preset on a number of tokens by a deadline, or draws a chart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from cli.answer import NEGATIVE, Form, Halt, write
from infra.cost import ListedKind, Rate, cheapest_rate, list_rate, price_table
from infra.money import HOURS_PER_DAY, dollars
from infra.plan import TABLE, Goal, Option, Order, Plan, read_rows
from infra.plan import plan as planned
from infra.review.table import UNKNOWN, Table
from infra.settings.errors import from_validation, nearest
from workloads.report.chart import HEIGHT, WIDTH, Line, Mark, amount, document, line_chart
from workloads.spec import TrainingSpec, preset_names

_COLOURS = 8
_LONGEST_SHOWN = 2
"""End of the chart, as a multiple of the deadline."""
_DAYS_WITHOUT_TENTHS = 100
_USUAL_REMAT = TrainingSpec.model_fields["remat"].default
_COLUMNS = (
    f"seq/chip: sequences of a chip in a step, and remat where it is not {_USUAL_REMAT}; batch: tokens of a step;"
    " 25 to 50 %: days if attention kernels reach that share of a chip's peak"
)


@dataclass(frozen=True)
class ChipPrices:
    """Prices of chips, with a description of them."""

    of: Callable[[str], Rate]
    """Returns the price of a generation."""
    words: str

    def usd(self, generation: str) -> float | None:
        """Return the price of a chip-hour in dollars. None: unknown."""
        return self.of(generation).usd_per_chip_hour


def chip_prices(zone: str | None, kind: ListedKind) -> ChipPrices:
    """Return the list prices of a zone, or the lowest of all zones. Raise Halt if its region has none."""
    if zone is None:
        return ChipPrices(lambda generation: cheapest_rate(generation, kind), f"{kind}, where it is cheapest")
    region = zone.rpartition("-")[0]
    regions = sorted({row.region for row in price_table().prices})
    if region not in regions:
        meant = f"did you mean {zone}-a? " if zone in regions else ""
        listed = f"a zone with list prices of TPUs, in one of the regions {', '.join(regions)}"
        raise Halt(f"{meant}--zone must be {listed}, got {zone!r}; omit it to use the lowest prices")
    return ChipPrices(lambda generation: list_rate(generation, region, zone, kind), f"{kind} in {zone}")


def goal(preset: str, tokens: float, days: float) -> Goal:
    """Return the goal of the plan. Raise Halt with every error of it."""
    known, meant = preset_names(), nearest(preset, preset_names())
    suggested = f"did you mean {meant}? " if meant else ""
    faults = [] if preset in known else [f"{suggested}--preset must be one of {', '.join(known)}, got {preset!r}"]
    try:
        found = Goal(preset=preset, tokens=tokens, days=days)
    except ValidationError as error:
        wrong = from_validation(error, "", Goal)
        faults += [f"--{fault.path}: expected {fault.expected}, got {fault.got}" for fault in wrong]
    else:
        if not faults:
            return found
    raise Halt("\n".join(faults))


def plan(goal: Goal, prices: ChipPrices, order: Order, svg: Path | None, form: Form, console: Console) -> int:
    """Print the plan. Return 0 if some slices meet the deadline, else 2. Raise Halt without a row or a price for it."""
    try:
        found = planned(read_rows(TABLE.read_text()), goal, prices.usd)
        drawn = chart(found, prices.words) if svg else ""
    except (ValueError, OSError) as error:
        raise Halt(str(error)) from None
    if svg:
        try:
            svg.write_text(drawn)
        except OSError as error:
            raise Halt(f"--svg: cannot write {svg}: {error.strerror}; choose another file") from None
    write(found.model_dump_json(indent=1), [table(found, prices, order)], form, console)
    return 0 if found.answers(order) else NEGATIVE


def chart(found: Plan, priced_as: str) -> str:
    """Return an SVG file with dollars over days, a line for each kind of slices. Raise ValueError without a price."""
    priced = [option.days for option in found.options if option.usd is not None]
    # If no option meets the deadline, the nearest must still be visible.
    longest = _LONGEST_SHOWN * max(found.goal.days, min(priced, default=0))
    lines: list[Line] = []
    for options in found.kinds():
        points = sorted((option.days, option.usd) for option in options if option.usd and option.days <= longest)
        if points:
            lines.append(Line(options[0].compiled.kind, f"c{len(lines) % _COLOURS + 1}", [points], dots=True))
    if not lines:
        raise ValueError(f"a chart of dollars needs the price of a chip, which is unknown {priced_as}; omit --svg")
    name = f"{found.goal.preset}, {amount(found.goal.tokens)} tokens: US dollars {priced_as}, by days; estimates"
    wanted = Mark(found.goal.days, f"{found.goal.days:g} days is the deadline", "restart")
    return document(name, line_chart(name, "days", lines, [wanted]), WIDTH, HEIGHT)


def table(found: Plan, prices: ChipPrices, order: Order) -> Table:
    """Return the options that meet the deadline, or the nearest ones."""
    goal, answers = found.goal, found.answers(order)
    nearest, shown = "no slices in the table meet the deadline; the nearest:", answers or found.nearest(order)
    return Table(
        title=f"{goal.preset}, {amount(goal.tokens)} tokens in {goal.days:g} days",
        verdict=f"by {order}, all times ESTIMATES" if answers else nearest,
        state="good" if answers else "bad",
        columns=("slices", "chips", "seq/chip", "batch", "step s", "MFU", "days", "25 to 50 %", "$", "binds"),
        rows=[[*_cells(option)] for option in shown],
        notes=[f"- {line}" for line in (_COLUMNS, *found.notes, *_priced(found, prices))],
        whole=range(9),
        spare=(2, 3, 7, 5),
    )


def _cells(option: Option) -> Iterator[str]:
    yield f"{option.slices} x {option.compiled.kind}"
    yield str(option.chips)
    remat = option.compiled.remat
    yield f"{option.compiled.sequences_per_chip}{'' if remat == _USUAL_REMAT else f', {remat}'}"
    yield amount(option.batch_tokens)
    yield f"{option.step_seconds:.2f}"
    yield f"{option.mfu:.0%}"
    yield _days(option.days)
    yield f"{_days(option.slowest_days)}-{_days(option.fastest_days)}"
    yield UNKNOWN if option.usd is None else f"{option.usd:,.0f}"
    yield ", ".join(option.binds)


def _days(days: float) -> str:
    return f"{days:.0f}" if days >= _DAYS_WITHOUT_TENTHS else f"{days:.1f}"


def _priced(found: Plan, prices: ChipPrices) -> Iterator[str]:
    for generation in dict.fromkeys(option.compiled.generation for option in found.options):
        rate = prices.of(generation)
        usd = rate.usd_per_chip_hour
        price = rate.source if usd is None else f"${usd} ({dollars(usd * HOURS_PER_DAY)} a day) in {rate.place}"
        dated = f" ({rate.source}, {rate.date})" if rate.date else ""
        yield f"a chip-hour of {generation}, {prices.words}: {price}{dated}"

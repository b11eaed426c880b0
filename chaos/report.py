"""The report of a catalogue: a Markdown table, and a picture of the recovery time after each fault. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import shorten

from chaos.faults import GROUPS
from chaos.trial import LongRun, Result
from workloads.report.chart import (
    HEIGHT,
    WIDTH,
    Line,
    Mark,
    Scale,
    amount,
    document,
    element,
    line_chart,
    nice_ticks,
    text,
)
from workloads.report.chart import picture as described
from workloads.report.goodput import Cause

TITLES = ("fault", "what happened", "lost steps", "back after", "counted", "ended", "record", "verdict")
_NUMBERS = (2, 3, 4)
_RECORD_CHARACTERS = 160
"""Maximum length of a record's text in the table. `results.json` contains the whole text."""
_NAMES, _WORDS, _HEADING, _ROW, _AXIS = 200, 160, 32, 18, 30
"""Sizes in the picture: width of the names and of the words after a bar; height of a heading, a row and the axis."""


def picture(results: Sequence[Result]) -> str:
    """Return the recovery times as an SVG file: a bar for each fault, longest first in each group of the catalogue."""
    found = [*_groups(results)]
    height = sum(_HEADING + _ROW * len(group) for _, group in found) + _AXIS
    ticks = nice_ticks(0.0, max((result.recovery_seconds or 0.0 for result in results), default=0.0))
    x = Scale(ticks[0], ticks[-1], _NAMES, WIDTH - _WORDS)
    drawn = [*_axis(ticks, x, height)]
    top = 0
    for title, group in found:
        drawn.append(text(title, 8, top + _HEADING - 8, class_="label strong"))
        top += _HEADING
        for result in group:
            drawn += _bar(result, x, top)
            top += _ROW
    words = ". ".join(f"{result.fault}: {_recovery(result)}" for _, group in found for result in group)
    caption = "seconds from the fault to the next new step"
    return document(caption, described("Recovery by fault", words, WIDTH, height, *drawn), WIDTH, height)


def _groups(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    for title, faults in GROUPS.items():
        names = {fault.name for fault in faults}
        if group := [result for result in results if result.fault in names]:
            yield title, sorted(group, key=lambda result: -(result.recovery_seconds or 0.0))


def _axis(ticks: Sequence[float], x: Scale, height: int) -> Iterator[str]:
    for tick in ticks:
        yield element("line", x1=x(tick), x2=x(tick), y1=0, y2=height - _AXIS, class_="grid")
        yield text(amount(tick), x(tick), height - 8, class_="tick", text_anchor="middle")


def _bar(result: Result, x: Scale, top: int) -> Iterator[str]:
    end = x(result.recovery_seconds or 0.0)
    style = "fill-1" if result.holds else "fill-bad"
    yield text(result.fault, _NAMES - 8, top + 13, class_="label", text_anchor="end")
    yield element("rect", x=_NAMES, y=top + 2, width=end - _NAMES, height=_ROW - 5, class_=style)
    yield text(_recovery(result), end + 8, top + 13, class_="tick")


def _recovery(result: Result) -> str:
    return f"the job ends: {result.ended_as}" if result.recovery_seconds is None else f"{result.recovery_seconds:.0f} s"


def markdown(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    rule = "|".join("---:" if column in _NUMBERS else "---" for column in range(len(TITLES)))
    lines = [f"| {' | '.join(TITLES)} |", f"|{rule}|"]
    for result in results:
        row = [
            result.what,
            str(result.lost_steps),
            _seconds(result),
            str(result.charged),
            f"{result.ended_as}: {', '.join(result.endings) or 'before a run was open'}",
            shorten(result.record or "none", _RECORD_CHARACTERS, placeholder=" ..."),
            _verdict(result) + "".join(f"; {error}" for error in result.broken),
        ]
        cells = " | ".join(cell.replace("|", "\\|") for cell in row)
        lines.append(f"| `{result.fault}` | {cells} |")
    return "\n".join(lines) + "\n"


def line(result: Result) -> str:
    """Return a result in one line, and another line for each failed check."""
    facts = f"lost {result.lost_steps} steps, back after {_seconds(result)}, {result.ended_as}"
    first = f"{result.fault:26} {_verdict(result):7} {facts}, ended {'/'.join(result.endings)}"
    return "\n".join([first, *_slices(result), *(f"    {error}" for error in result.broken)])


def _slices(result: Result) -> Iterator[str]:
    if found := result.slices:
        back = "not back" if found.back_seconds is None else f"back after {found.back_seconds:.0f} s"
        steps = f"{found.loss_step_seconds:.2f} s, median {found.median_step_seconds:.2f} s"
        longest = f"longest until back {found.slowest_step_seconds:.2f} s"
        yield f"    slices: {back}; step of the loss {steps}, {longest}; {found.checkpoint_reads} reads of checkpoints"


def _seconds(result: Result) -> str:
    return "-" if result.recovery_seconds is None else f"{result.recovery_seconds:.0f} s"


def _verdict(result: Result) -> str:
    return "holds" if result.holds else "BROKEN"


def long_run_markdown(run: LongRun) -> str:
    """Return a long run as a summary and two tables."""
    seen, seconds = run.result, sum(run.spent.values())
    minutes = (seen.ended - seen.began) / 60
    productive = run.spent.get(Cause.PRODUCTIVE, 0.0)
    summary = (
        f"Seed {run.seed}: {seen.what}, {minutes:.0f} minutes in all, {run.steps} steps, {len(seen.endings)} starts,"
        f" {seen.lost_steps} steps done again, {seen.charged} restarts that count, goodput"
        f" {100 * productive / seconds:.1f} %. {seen.ended_as};"
        f" {'losses, batches and endings as demanded' if seen.holds else '; '.join(seen.broken)}.\n"
    )
    struck = Counter(strike.fault for strike in run.strikes)
    faults = ["| fault | times |", "|---|---:|", *(f"| `{name}` | {times} |" for name, times in struck.most_common())]
    spent = [
        "| time went to | seconds | share |",
        "|---|---:|---:|",
        *(f"| {name} | {spent:.0f} | {100 * spent / seconds:.1f} % |" for name, spent in run.spent.items()),
    ]
    return "\n".join([summary, *faults, "", *spent]) + "\n"


def long_run_picture(run: LongRun) -> str:
    """Return the loss of a long run over its minutes, with a vertical line where each fault struck."""
    began = run.result.began
    pieces = [[((time - began) / 60, loss) for time, loss in start] for start in run.result.curve if start]
    marks = [Mark((strike.time - began) / 60, strike.fault, "fault") for strike in run.strikes]
    drawn = line_chart("Loss", "minute", [Line("loss", "c1", pieces)], marks)
    return document("loss over wall time in minutes; upright lines: random faults", drawn, WIDTH, HEIGHT)

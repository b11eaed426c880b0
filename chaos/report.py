"""The report of a catalogue: a Markdown table, and a picture of the loss over wall time with the faults marked.
Pure."""

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten

from chaos.trial import LongRun, Result, in_a_row
from workloads.report.chart import HEIGHT, WIDTH, Line, Mark, document, line_chart
from workloads.report.goodput import Cause

TITLES = ("fault", "what happened", "lost steps", "back after", "counted", "ended", "record", "verdict")
_NUMBERS = (2, 3, 4)
_RECORD_CHARACTERS = 160
"""Maximum length of a record's text in the table. `results.json` contains the whole text."""


def plot(results: Sequence[Result]) -> str:
    """Losses of all jobs in sequence over the minutes, with a vertical line where each fault struck."""
    trials = [*in_a_row(results)]
    zero = min((result.began for result in trials), default=0.0)
    pieces = [
        [((time - zero) / 60, loss) for time, loss in start] for result in trials for start in result.curve if start
    ]
    marks = [
        Mark((result.struck - zero) / 60, f"{result.fault}: {_verdict(result)}", "restart" if result.holds else "fault")
        for result in trials
    ]
    return line_chart("Loss", "minute", [Line("loss", "c1", pieces)], marks)


def picture(results: Sequence[Result]) -> str:
    """Return the plot as an SVG file."""
    return document("loss over wall time in minutes; upright lines: faults", plot(results), WIDTH, HEIGHT)


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
    return "\n".join([first, *(f"    {error}" for error in result.broken)])


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

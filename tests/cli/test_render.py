import pytest
from rich.console import Group

from cli.render import duration, exit_words, sparkline, training_lines
from infra.cluster.job_state import Kind
from tests.cli.shown import text
from workloads.report.training import Training


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (42.4, "42 s"), (187, "3 min 07 s"), (7500, "2 h 05 min")]
)
def test_durations_read_well(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("code", "kind", "shown"),
    [
        (22, Kind.TRAINING, "22 (diverged)"),
        (143, Kind.TRAINING, "143 (preempted)"),
        (137, Kind.TRAINING, "137 (SIGKILL)"),
        (3, Kind.TRAINING, "3"),
        (22, Kind.CONTAINER, "22"),
        (137, Kind.CONTAINER, "137 (SIGKILL)"),
    ],
)
def test_exit_codes_are_named_but_those_of_other_programs_only_if_a_signal_ended_them(
    code: int, kind: Kind, shown: str
) -> None:
    assert exit_words(code, kind) == shown


def test_the_sparkline_keeps_the_newest_value_and_the_width() -> None:
    assert sparkline([float(value) for value in range(100)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([2.0, 2.0], 8) == "▁▁"
    assert sparkline([], 8) == ""


def test_the_figures_of_a_training_are_below_its_bar() -> None:
    training = Training(step=5, steps=10, loss=2.5, losses=((5, 2.5),), last_step_at=1.0)
    lines = text(Group(*training_lines(training, None, 40)), 120).splitlines()
    assert (len(lines), lines[1].startswith("loss 2.500")) == (3, True)

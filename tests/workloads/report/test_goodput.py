from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.report.runs import crashed_and_resumed, event, history, step, write_run
from workloads.report.goodput import Cause, goodput, lost_steps
from workloads.report.history import Event, Failure, Start, Step
from workloads.spec import ExitCode


def test_every_second_of_a_crashed_and_resumed_run_has_its_cause(tmp_path: Path) -> None:
    found = goodput(history(crashed_and_resumed(tmp_path)).starts)
    assert {part.name: part.seconds for part in found.parts} == pytest.approx(
        {
            "waiting for hosts": 2.0,
            "start of hosts": 3.0 + 3.0,
            "compilation": 4.0 + 1.0,
            "restore": 2.0,
            "productive steps": 0.75 + 1 + 1 + 1,
            "steps waiting for the host": 0.25,
            "saves": 1.0 + 0.5,
            # Steps 3 and 4, which were done again, what was done of step 5, and the step that was skipped.
            "lost work": 1 + 1 + 1.5 + 1,
            "down after CRASH": 30 - 15.5,
            "evaluation": 2.0,
            "other": 0.5,
        }
    )
    assert found.seconds == 42.0
    assert found.productive == pytest.approx(3.75 / 42)


def test_steps_that_a_start_goes_back_over_are_lost(tmp_path: Path) -> None:
    went_back = [step(number, time) for time, number in enumerate([1, 2, 3, 2, 3, 4])]
    run = write_run(tmp_path, {"0-0": [event(0, "start", began=0, run_id="a", restart_attempt=0)]}, {"0-0": went_back})
    assert lost_steps(history(run).starts) == {(0, 1), (0, 2)}


@pytest.mark.parametrize(
    ("code", "cause"),
    [(ExitCode.HANG, Cause.HUNG), (ExitCode.CRASH, Cause.LOST), (ExitCode.PREEMPTED, Cause.SAVE)],
)
def test_the_last_piece_of_a_start_counts_for_how_it_ended(code: ExitCode, cause: Cause) -> None:
    start = Start(0, {0: (Event(0.0, "start", {"began": 0.0}),)}, failures=(Failure(0, "host-0", "why", code, 600.0),))
    assert [(part.cause, part.seconds) for part in goodput([start]).parts] == [(cause, 600.0)]


def test_a_start_that_vanished_is_named_in_the_time_that_the_run_was_down(tmp_path: Path) -> None:
    starts = [Start(number, {0: (Event(time, "start", {"began": time}),)}) for number, time in ((0, 0.0), (1, 9.0))]
    starts = [Start(start.number, start.ledgers, followed=not start.number) for start in starts]
    assert [part.name for part in goodput(starts).parts] == ["down after KILLED"]


times = st.floats(0, 1e6)

events = st.builds(
    lambda time, name, step: Event(time, name, {"step": step}),
    times,
    st.sampled_from(["restore", "compile", "RunStarted", "save", "Evaluation", "warning", "RunSummary", "stop"]),
    st.integers(0, 9),
)

steps = st.builds(
    lambda number, time, seconds, share, skipped: Step(
        number, time, seconds, seconds * share, 1.0, skipped, None, None, None
    ),
    st.integers(1, 9),
    times,
    st.floats(0, 100),
    st.floats(0, 1),
    st.booleans(),
)


@st.composite
def starts_of_a_run(draw: st.DrawFn) -> list[Start]:
    """Starts with clocks that disagree, events in any order, and files missing."""
    count = draw(st.integers(1, 4))
    return [
        Start(
            number,
            {
                process: (Event(draw(times), "start", {"began": draw(times)}), *draw(st.lists(events, max_size=6)))
                for process in draw(st.sets(st.integers(0, 2)))
            },
            tuple(draw(st.lists(steps, max_size=6))),
            tuple(
                Failure(0, "host", "why", code, draw(times)) for code in draw(st.lists(st.sampled_from([1, 24, 143])))
            ),
            followed=number < count - 1,
        )
        for number in range(count)
    ]


@given(starts_of_a_run())
def test_parts_are_positive_and_add_up_to_the_whole(starts: list[Start]) -> None:
    found = goodput(starts)
    assert all(part.seconds > 0 for part in found.parts)
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds)
    assert 0 <= found.productive <= 1
    # The whole is what lies between the first begin and the last that is known of any start.
    assert found.seconds >= max(0.0, starts[-1].ended - starts[0].began[0]) - 1e-6

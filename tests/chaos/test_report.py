"""How results look."""

import re

import pytest

from chaos import report
from chaos.trial import LongRun, SliceFigures, Strike
from tests.chaos.known import HELD, LOST


def test_the_table_has_a_row_for_each_fault_with_what_did_not_hold() -> None:
    rows = report.markdown((HELD, LOST)).splitlines()[2:]
    assert rows == [
        "| `follower-killed` | a host that leads nothing is killed | 2 | 31 s | 1 | Completed: KILLED, DONE | none"
        " | holds |",
        "| `host-stopped` | a host hangs \\| without an end | 9 | - | 0 | Failed: HANG"
        " | job-slice-1-1: step 11 did not end | BROKEN; expected 2 starts, got 1 |",
    ]


def test_the_line_of_a_fault_of_single_slices_says_what_it_cost_the_others() -> None:
    figures = SliceFigures(
        median_step_seconds=0.5,
        loss_step_seconds=0.64,
        slowest_step_seconds=1.2,
        back_seconds=25.2,
        checkpoint_reads=0,
    )
    said = report.line(HELD.model_copy(update={"slices": figures})).splitlines()[1]
    assert said.split("; ") == [
        "    slices: back after 25 s",
        "step of the loss 0.64 s, median 0.50 s, longest until back 1.20 s",
        "0 reads of checkpoints",
    ]


def test_a_job_that_never_opened_its_run_says_so() -> None:
    row = report.markdown((LOST.model_copy(update={"endings": ()}),)).splitlines()[2]
    assert "| Failed: before a run was open |" in row


def test_a_long_record_is_cut_in_the_table() -> None:
    text = "job-slice-1-1: " + 20 * "a word of its own, " + "and the last"
    row = report.markdown((LOST.model_copy(update={"record": text}),)).splitlines()[2]
    assert " | job-slice-1-1: a word of its own, " in row
    assert " ... | BROKEN" in row
    assert "and the last" not in row


def test_the_picture_has_the_faults_of_a_group_with_the_longest_recovery_first_and_broken_ones_in_red() -> None:
    later = HELD.model_copy(update={"fault": "leader-killed", "recovery_seconds": 62.8})
    drawn = report.picture((HELD, later, LOST))
    shown = re.findall(r'<rect x="200"[^>]* width="([\d.]+)"[^>]*class="([\w-]+)"', drawn)
    assert [style for _, style in shown] == ["fill-1", "fill-1", "fill-bad"]
    assert float(shown[0][0]) == pytest.approx(2 * float(shown[1][0]), abs=0.1)
    assert re.findall(r'class="label">([\w-]+)<|anchor="end">([\w-]+)<', drawn)[:2] == [
        ("", "leader-killed"),
        ("", "follower-killed"),
    ]
    assert "the job ends: Failed" in drawn


def test_a_line_of_the_screen_is_followed_by_what_did_not_hold() -> None:
    assert report.line(LOST).splitlines()[1:] == ["    expected 2 starts, got 1"]
    assert "holds   lost 2 steps, back after 31 s, Completed, ended KILLED/DONE" in report.line(HELD)


RUN = LongRun(
    seed=7,
    strikes=(Strike(fault="follower-killed", time=1030.0), Strike(fault="follower-killed", time=1060.0)),
    spent={"productive steps": 90.0, "down after KILLED": 30.0},
    result=HELD,
)


def test_a_long_run_is_reported_with_its_seed_its_faults_and_its_use_of_time() -> None:
    text = report.long_run_markdown(RUN)
    assert text.startswith(
        "Seed 7: a host that leads nothing is killed, 2 minutes in all, 2 steps, 2 starts, 2 steps done again,"
        " 1 restarts that count, goodput 75.0 %."
    )
    assert "| `follower-killed` | 2 |" in text
    assert "| down after KILLED | 30 | 25.0 % |" in text


def test_the_picture_of_a_long_run_marks_every_strike() -> None:
    assert report.long_run_picture(RUN).count('class="mark fault"') == 2

from pathlib import Path

import pytest

from tests.workloads.report.runs import Facts, began, crashed_and_resumed, event, history, step, write_run
from workloads.report.training import Training, summarize_training

OPENED = event(9, "run_started", run="one", outcome="new", step=0, steps=9)
SAVES = [event(12, "checkpoint_saved", step=2), event(14, "checkpoint_saved", step=4)]


def found(storage: Path, *ledgers: list[Facts], steps: tuple[Facts, ...] = ()) -> Training:
    """Return the progress of attempts with these ledgers, the first of which did `steps`."""
    files = {f"{number}-0": [began(5, number, 5), *lines] for number, lines in enumerate(ledgers)}
    return summarize_training(history(write_run(storage, files, {"0-0": steps})))


def test_a_run_that_has_ended_has_the_figures_of_its_last_attempt(tmp_path: Path) -> None:
    seen = summarize_training(history(crashed_and_resumed(tmp_path)))
    assert (seen.step, seen.steps, seen.attempt, seen.ended) == (5, 5, 2, True)
    assert (seen.run, seen.loss, seen.held_out_loss) == ("resumed at step 2", 3.0, 2.5)
    assert [each for each, _ in seen.losses] == [1, 2, 3, 5]


def test_results_of_steps_that_are_repeated_do_not_count_until_they_are(tmp_path: Path) -> None:
    first = [OPENED, SAVES[0], event(13, "evaluation", step=1, loss=2.5), event(14, "evaluation", step=3, loss=2.0)]
    again = [event(20, "restore", step=2, source="storage")]
    seen = found(tmp_path, first, again, steps=(step(1, 10), step(2, 11, loss=2.75), step(3, 13, loss=2.25)))
    assert (seen.step, seen.loss, seen.held_out_loss) == (2, None, 2.5)
    assert seen.losses == ((1, 3.0), (2, 2.75))
    assert seen.words(running=True) == "step 2 of 9 in attempt 2"


def test_an_attempt_that_lacks_slices_says_so(tmp_path: Path) -> None:
    start = began(5) | {"slices": 3, "asked_slices": 4}
    seen = summarize_training(history(write_run(tmp_path, {"0-0": [start, OPENED]}, {"0-0": [step(1, 10)]})))
    assert (seen.slices, seen.asked_slices) == (3, 4)
    assert seen.words(running=True) == "step 1 of 9 on 3 of 4 slices"


def test_after_a_rollback_the_step_is_the_one_that_training_went_back_to(tmp_path: Path) -> None:
    back = event(16, "restore", step=2, batch=2)
    seen = found(tmp_path, [OPENED, SAVES[0], back], steps=(step(1, 10), step(2, 11), step(3, 13), step(4, 14)))
    assert (seen.step, seen.loss, seen.words(running=True)) == (2, None, "step 2 of 9")


@pytest.mark.parametrize(
    ("events", "saved"),
    [
        (SAVES, 4),
        ([*SAVES, event(15, "checkpoint_skipped", step=4)], 2),
        ([event(15, "restore", step=3, source="storage")], 3),
        ([SAVES[0], event(15, "restore", step=3, source="memory")], 2),
        ([], None),
    ],
    ids=[
        "the newest",
        "one that cannot be used",
        "one that a killed leader did not record",
        "memory is no save",
        "none",
    ],
)
def test_the_last_save_is_one_that_can_be_restored(tmp_path: Path, events: list[Facts], saved: int | None) -> None:
    assert found(tmp_path, [OPENED, *events]).checkpoint_step == saved


def test_an_attempt_that_failed_before_it_opened_the_run_has_no_figures(tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path)
    (run / "ledger" / "1-0.jsonl").unlink()
    (run / "steps" / "1-0.jsonl").unlink()
    failed = '{"host": "host-1", "cause": "no such data", "code": 1, "time": 40, "elsewhere": false}'
    (tmp_path / "failures" / "job" / "host-1-1-33.json").write_text(failed)
    seen = summarize_training(history(run))
    assert (seen.step, seen.loss, seen.losses) == (None, None, ())

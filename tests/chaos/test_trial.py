from chaos.trial import LongRun, demanded, from_json, in_a_row, long_run_to_json, to_json
from chaos.verdict import Expected
from tests.chaos.known import HELD, LOST
from tests.chaos.test_report import RUN


def test_results_come_back_from_their_file_as_they_were() -> None:
    assert from_json(to_json((HELD, LOST))) == (HELD, LOST)


def test_a_file_has_a_line_for_each_result_and_numbers_to_a_thousandth() -> None:
    later = HELD.model_copy(update={"recovery_seconds": 31.40049})
    assert to_json((later, LOST)) == to_json((HELD, LOST))
    assert len(to_json((HELD, LOST)).splitlines()) == 4


def test_a_long_run_comes_back_from_its_file_as_it_was() -> None:
    assert LongRun.model_validate_json(long_run_to_json(RUN)) == RUN


def test_the_demands_of_an_entry_are_said_in_words() -> None:
    assert demanded(Expected(endings=frozenset({"HANG", "KILLED"})), 8) == (
        "Completed, 2 starts, 1 counted, at most 8 steps again, first ends as HANG or KILLED, same losses bit for bit"
    )
    stated = Expected("Failed", 1, 0, culprit="job-slice-1-1", cause="NaN", lost_steps=0, loss_tolerance=0.1)
    assert demanded(stated, 8) == (
        "Failed, 1 start, 0 counted, no step again, record of job-slice-1-1 says 'NaN', losses within 0.1"
    )


def test_trials_of_several_runs_are_put_in_a_row() -> None:
    later = LOST.model_copy(update={"began": 9120.0, "struck": 9150.0, "ended": 9300.0, "curve": (((9130.0, 5.0),),)})
    first, second = in_a_row((HELD, later))
    assert first == HELD
    assert (second.began, second.struck, second.ended) == (HELD.ended, HELD.ended + 30, HELD.ended + 180)
    assert second.curve == (((HELD.ended + 10, 5.0),),)

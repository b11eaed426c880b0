from chaos.trial import LongRun, from_json, long_run_to_json, to_json
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

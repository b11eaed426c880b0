import json
from pathlib import Path

import pytest
from etils import epath

from multislice_run.attempt_facts import AttemptFacts, PastEnd, past_ends, usd_per_hour
from workloads.spec import ExitCode


def record(folder: Path, name: str, code: int, time: float, *, elsewhere: bool = False) -> None:
    path = folder / "failures" / "run-1" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"cause": "", "details": [], "host": name, "code": code, "time": time, "elsewhere": elsewhere}
    path.write_text(json.dumps(facts))


def ends(folder: Path, restarts: int) -> dict[str, PastEnd]:
    return past_ends(epath.Path(folder), AttemptFacts("run-1", restarts, 9000.0, None, 2, None))


def test_each_restart_counts_once_for_the_host_that_failed_itself(tmp_path: Path) -> None:
    record(tmp_path, "host-a-0-1000", ExitCode.HANG, 1500.0, elsewhere=True)
    record(tmp_path, "host-b-0-1001", ExitCode.HANG, 1400.0)
    record(tmp_path, "host-c-0-1002", ExitCode.HANG, 1501.0, elsewhere=True)
    record(tmp_path, "host-a-1-2000", ExitCode.BAD_HOST, 2100.0)
    record(tmp_path, "host-b-10-7000", ExitCode.BAD_HOST, 7100.0)
    assert ends(tmp_path, 11) == {"HANG": PastEnd(1, 1400.0), "BAD_HOST": PastEnd(2, 7100.0)}


def test_a_first_start_has_no_past_and_the_one_that_runs_has_not_ended(tmp_path: Path) -> None:
    assert ends(tmp_path, 0) == {}
    record(tmp_path, "host-a-1-2000", ExitCode.HANG, 2100.0)
    assert ends(tmp_path, 1) == {}


def test_a_damaged_record_hides_no_other(tmp_path: Path) -> None:
    record(tmp_path, "host-a-0-1000", ExitCode.CRASH, 1.0)
    (tmp_path / "failures" / "run-1" / "host-a-0-1000.json").write_text("{")
    record(tmp_path, "host-b-0-1001", 77, 1400.0)
    assert ends(tmp_path, 1) == {"77": PastEnd(1, 1400.0)}


@pytest.mark.parametrize(
    ("written", "price"),
    [("43.2", 43.2), ("0", 0.0), (None, None), ("", None), ("much", None), ("nan", None), ("inf", None), ("-1", None)],
)
def test_a_price_that_cannot_be_read_is_unknown(written: str | None, price: float | None) -> None:
    assert usd_per_hour({} if written is None else {"USD_PER_HOUR": written}) == price

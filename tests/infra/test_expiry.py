"""When a stack may no longer be changed; that the engine refuses is tried in tests/chain."""

from datetime import UTC, date, datetime

import pytest

from infra.readiness import expired
from infra.settings.schema import Budget, Environment

BUDGET = Budget(expires_on=date(2026, 3, 1))
ENVIRONMENT = Environment(source="dev", expires_at="2026-03-01T18:00:00Z")


@pytest.mark.parametrize(("day", "over"), [(1, False), (2, True)])
def test_a_budget_holds_through_its_last_day(day: int, *, over: bool) -> None:
    faults = expired(BUDGET, None, datetime(2026, 3, day, 23, 59, tzinfo=UTC))
    assert bool(faults) == over
    assert "got 2026-03-01; set a later one, or destroy" in "".join(map(str, faults)) or not over


@pytest.mark.parametrize(("minute", "over"), [(59, False), (60, True)])
def test_an_environment_ends_at_its_time(minute: int, *, over: bool) -> None:
    at = datetime(2026, 3, 1, 17 + minute // 60, minute % 60, tzinfo=UTC)
    faults = expired(None, ENVIRONMENT, at)
    assert bool(faults) == over
    assert "got 2026-03-01T18:00:00Z; destroy it: multislice env destroy" in "".join(map(str, faults)) or not over


def test_both_ends_are_told_at_once() -> None:
    faults = expired(BUDGET, ENVIRONMENT, datetime(2026, 4, 1, tzinfo=UTC))
    assert [fault.path for fault in faults] == ["budget.expires_on", "environment.expires_at"]


def test_a_stack_without_an_end_never_expires() -> None:
    assert expired(Budget(usd_per_hour=1), None, datetime(2999, 1, 1, tzinfo=UTC)) == []

from datetime import date

import pytest

from policy.exceptions import ENDING, LONGEST, GrantedException, read_exceptions, unknown_rules, void
from policy.rules import ALL_RULES

LAST_DAY = date(2027, 1, 31)
GRANTED = GrantedException("slices-*", "An old partner.", LAST_DAY)


def test_an_exception_counts_until_the_end_of_its_last_day() -> None:
    assert void([GRANTED], "slices-trillium-0", LAST_DAY) is None
    assert void([GRANTED], "slices-trillium-0", date(2027, 2, 1)) == (
        "The exception until 2027-01-31 (An old partner.) has expired.",
    )


def test_an_exception_counts_from_a_year_before_its_last_day() -> None:
    assert void([GRANTED], "slices-trillium-0", LAST_DAY - LONGEST) is None
    assert void([GRANTED], "slices-trillium-0", date(2026, 1, 29)) == (
        "The exception until 2027-01-31 (An old partner.) is not valid yet: the latest last day is 2027-01-30.",
    )


def test_an_exception_is_for_the_names_of_its_pattern_alone() -> None:
    assert void([GRANTED], "cluster", LAST_DAY) == ()
    assert void([GRANTED], "", LAST_DAY) == ()


def test_a_pattern_for_everything_holds_for_the_stack_as_a_whole() -> None:
    assert void([GrantedException("*", "All of it.", LAST_DAY)], "", LAST_DAY) is None


def test_one_exception_that_counts_is_enough() -> None:
    expired = GrantedException("*", "Earlier.", date(2020, 1, 1))
    assert void([expired, GRANTED], "slices-trillium-0", LAST_DAY) is None


def test_an_impossible_date_is_reported_with_its_exception() -> None:
    entry = {"resource": "cluster", "reason": "Because.", "expires_on": "2027-02-30"}
    with pytest.raises(
        ValueError, match=r"exception for 'cluster': expected expires_on to be a day .* got '2027-02-30'"
    ):
        read_exceptions({"exceptions": [entry]})


def test_a_name_that_is_no_rule_is_reported_with_the_rule_that_it_became() -> None:
    exceptions = {"exceptions": []}
    policy_file = {name: exceptions for name in ("all", ENDING.id, "no-keys", "named-rights", "no-kesy")}
    merged, misspelt = unknown_rules(policy_file, (ENDING, *ALL_RULES))
    assert "got 'named-rights': it is now part of no-cluster-admin" in merged
    assert "got 'no-kesy': correct the name" in misspelt

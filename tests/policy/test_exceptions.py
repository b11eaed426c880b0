from datetime import date

import pytest

from policy.exceptions import ENDING, MAX_LIFETIME, GrantedException, file_errors, longest, read_exceptions
from policy.rules import ALL_RULES

LAST_DAY = date(2027, 1, 31)
GRANTED = GrantedException("slices-*", "An old partner.", LAST_DAY)
ALL = GrantedException("*", "All of it.", LAST_DAY)


@pytest.mark.parametrize(
    ("exception", "name", "day", "covers"),
    [
        pytest.param(GRANTED, "slices-trillium-0", LAST_DAY, True, id="counts on its last day"),
        pytest.param(
            GRANTED, "slices-trillium-0", LAST_DAY - MAX_LIFETIME, True, id="counts a year before its last day"
        ),
        pytest.param(GRANTED, "cluster", LAST_DAY, False, id="does not count for other names"),
        pytest.param(GRANTED, "", LAST_DAY, False, id="does not count for the stack as a whole"),
        pytest.param(ALL, "", LAST_DAY, True, id="counts for the stack if it is for everything"),
    ],
)
def test_an_exception(exception: GrantedException, name: str, day: date, covers: bool) -> None:
    assert longest([exception], name, day) == (exception if covers else None)


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (date(2027, 2, 1), "has expired."),
        (date(2026, 1, 29), "is not valid yet: the latest last day is 2027-01-30."),
    ],
)
def test_an_exception_that_does_not_count_on_a_day_says_why(day: date, why: str) -> None:
    assert GRANTED.void(day) == f"The exception until 2027-01-31 (An old partner.) {why}"
    assert longest([GRANTED], "slices-trillium-0", day) is None


def test_one_exception_that_counts_is_enough() -> None:
    expired = GrantedException("*", "Earlier.", date(2020, 1, 1))
    assert longest([expired, GRANTED], "slices-trillium-0", LAST_DAY) == GRANTED


def test_an_impossible_date_is_reported_with_its_exception() -> None:
    entry = {"resource": "cluster", "reason": "Because.", "expires_on": "2027-02-30"}
    with pytest.raises(
        ValueError, match=r"exception for 'cluster': expected expires_on to be a day .* got '2027-02-30'"
    ):
        read_exceptions({"exceptions": [entry]})


def errors(policy_file: object) -> dict[str, str]:
    return dict(file_errors(policy_file, (ENDING, *ALL_RULES)))


def test_a_name_that_is_no_rule_is_reported_with_the_rule_that_it_became() -> None:
    exceptions = {"exceptions": []}
    found = errors({name: exceptions for name in ("all", ENDING.id, "no-keys", "named-rights", "no-kesy")})
    assert found.keys() == {"named-rights", "no-kesy"}
    assert "got 'named-rights': it is now part of no-cluster-admin" in found["named-rights"]
    assert "did you mean no-keys?" in found["no-kesy"]


def test_every_error_of_a_policy_file_is_reported_with_its_place() -> None:
    good = {"resource": "cluster", "reason": "Because.", "expires_on": "2027-01-31"}
    bad = {"resource": "", "expires_on": "2027-02-30", "until": "never"}
    found = errors({"no-keys": {"exceptions": [good, bad], "enforcementLevel": "strict"}, "all": "loud", "named": 3})
    place = "no-keys.exceptions[1]"
    assert found.keys() == {
        *(f"{place}.{name}" for name in ("resource", "reason", "expires_on", "until")),
        "no-keys.enforcementLevel",
        "all",
        "named",
    }
    assert "got '2027-02-30'" in found[f"{place}.expires_on"]


@pytest.mark.parametrize("content", [[], None, "{}", 3])
def test_a_policy_file_that_is_no_mapping_is_one_error(content: object) -> None:
    assert "write {} for none" in errors(content)[""]


def test_values_are_shown_as_they_are_written() -> None:
    day = {"resource": "cluster", "reason": "Because.", "expires_on": date(2027, 1, 1)}
    found = errors({"no-keys": {"exceptions": [day]}, "no-cluster-admin": None})
    assert "got 2027-01-01; put it in quotation marks" in found["no-keys.exceptions[0].expires_on"]
    assert found["no-cluster-admin"].endswith("got null")

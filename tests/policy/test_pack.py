"""What Pulumi's SDK hands over, and what it is handed back; the engine itself is in tests/chain."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
from pulumi_policy import (
    PolicyCustomTimeouts,
    PolicyResourceOptions,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy import proxy as sdk

from policy.pack import policies
from policy.rule import Check, Declared, ResourceRule

TODAY = date(2027, 1, 15)
OPTIONS = PolicyResourceOptions(False, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])
BUCKET = "b"
GRANT = {"resource": BUCKET, "reason": "It is old.", "expires_on": "2027-01-15"}


def reported(
    check: Check,
    properties: dict[str, Any],
    *exceptions: Mapping[str, str],
    urn: str = f"u::v::t::{BUCKET}",
    excusable: bool = True,
) -> tuple[list[str], list[str]]:
    """What a policy reports of one resource, and what is reported of exceptions that end soon."""
    rule = ResourceRule(
        id="named",
        severity="low",
        title="It has a name",
        why="A.",
        fix="B.",
        link="https://c.example",
        checks={"gcp:*Bucket": check},
        excusable=excusable,
    )
    policy, ending = policies([rule], lambda: TODAY)
    assert isinstance(policy, ResourceValidationPolicy)
    assert isinstance(ending, StackValidationPolicy)
    handed, settings = sdk.unknown_checking_proxy(properties), {"exceptions": exceptions}
    messages: list[str] = []
    warnings: list[str] = []
    # The engine asks about a resource when it is declared, and again when its inputs are known.
    for _ in range(2):
        messages.clear()
        args = ResourceValidationArgs("gcp:storage/bucket:Bucket", handed, urn, BUCKET, OPTIONS, None, settings)
        policy.validate(args, lambda message, urn=None: messages.append(message))
    ending.validate(StackValidationArgs([], {}, {}), lambda message, urn=None: warnings.append(message))
    return messages, warnings


def nameless(bucket: Declared) -> list[str]:
    return [] if "name" in bucket.properties else ["expected a name, got none"]


def labelled(bucket: Declared) -> list[str]:
    return [] if bucket.properties["labels"] == ["a", {"b": 1}] else ["expected labels, got others"]


def called_default(bucket: Declared) -> list[str]:
    return ["expected another name, got default"] if bucket.properties["name"] == "default" else []


def test_whether_there_will_be_a_value_can_be_asked_of_one_that_is_not_known() -> None:
    assert reported(nameless, {"name": sdk.UNKNOWN_STRING_VALUE}) == ([], [])


def test_an_unknown_value_cannot_be_read_and_pulumi_reports_it() -> None:
    with pytest.raises(sdk.UnknownValueError) as caught:
        reported(called_default, {"name": sdk.UNKNOWN_STRING_VALUE})
    assert caught.value.props == ["name"]


def test_lists_and_objects_compare_as_they_look() -> None:
    assert reported(labelled, {"labels": ["a", {"b": 1}]}) == ([], [])


def test_a_rule_without_exceptions_excuses_no_resource() -> None:
    assert len(reported(nameless, {}, GRANT, excusable=False)[0]) == 1


def test_an_exception_is_not_for_a_name_that_ends_in_the_one_it_names() -> None:
    assert reported(nameless, {}, GRANT, urn=f"urn:pulumi:s::p::t::mine::{BUCKET}")[0]


@pytest.mark.parametrize(("expires_on", "days"), [("2027-01-15", 0), ("2027-03-16", 60), ("2027-03-17", None)])
def test_an_exception_that_ends_within_sixty_days_is_reported_once(expires_on: str, days: int | None) -> None:
    messages, warnings = reported(nameless, {}, {**GRANT, "expires_on": expires_on})
    assert messages == []
    assert len(warnings) == (days is not None)
    for warning in warnings:
        assert all(part in warning for part in ("named", "b", "It is old.", f"on {expires_on}, in {days} days"))
        assert "policy file" in warning


def test_an_exception_that_another_outlasts_or_that_is_not_needed_is_not_reported() -> None:
    later = {"resource": "*", "reason": "All are old.", "expires_on": "2027-12-31"}
    assert reported(nameless, {}, GRANT, later) == ([], [])
    assert reported(nameless, {"name": "a"}, GRANT) == ([], [])

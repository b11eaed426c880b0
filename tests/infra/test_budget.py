"""The Cloud Billing budget of a stack, as the program declares it and the sandbox's plugin takes it."""

from typing import Any

from tests.infra.recording import Recording, Values, run_program

BUDGET, CHANNEL = "gcp:billing/budget:Budget", "gcp:monitoring/notificationChannel:NotificationChannel"
ALERTS: Values = {"billing_account": "012345-6789AB-CDEF01", "usd_per_month": 30000}


def declared(values: Values, **alerts: object) -> Recording:
    return run_program(values | {"budget": {"alerts": ALERTS | alerts}})


def budget_of(recording: Recording) -> Any:
    (found,) = recording.of_type(BUDGET)
    return found.inputs


def test_a_stack_without_alerts_needs_no_billing_account(values: Values) -> None:
    assert run_program(values | {"budget": {"usd_per_hour": 1e6}}).of_type(BUDGET) == []


def test_named_people_are_alerted_in_place_of_the_billing_administrators(values: Values) -> None:
    recording = declared(values, emails=["ada@example.com", "bob@example.com"])
    channels = sorted(recording.of_type(CHANNEL), key=lambda each: each.name)
    assert [each.inputs["labels"] for each in channels] == [
        {"email_address": "ada@example.com"},
        {"email_address": "bob@example.com"},
    ]
    rule = budget_of(recording)["allUpdatesRule"]
    assert rule["disableDefaultIamRecipients"] is True
    assert sorted(rule["monitoringNotificationChannels"]) == [f"{each.name}-id" for each in channels]
    assert "allUpdatesRule" not in budget_of(declared(values))


def test_the_budget_api_is_asked_on_behalf_of_the_project(values: Values) -> None:
    recording = declared(values)
    (budget,) = recording.of_type(BUDGET)
    (provider,) = (each for each in recording.of_type("pulumi:providers:gcp") if each.urn in budget.request.provider)
    assert provider.inputs["billingProject"] == values["cloud"]["project"]
    assert provider.inputs["userProjectOverride"] in (True, "true")
    enabled = recording.named("gcp:projects/service:Service", "apis-billingbudgets")
    assert enabled.urn in recording.closure(budget)

"""The Cloud Billing budget of a stack, as the program declares it and the sandbox's plugin takes it."""

from typing import Any

import pytest

from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.infra.recording import PROJECT_NUMBER, Recording, Values, run_program

BUDGET, CHANNEL = "gcp:billing/budget:Budget", "gcp:monitoring/notificationChannel:NotificationChannel"
ALERTS: Values = {"billing_account": "012345-6789AB-CDEF01", "usd_per_month": 30000}


def declared(values: Values, **alerts: object) -> Recording:
    return run_program(values | {"budget": {"alerts": ALERTS | alerts}})


def budget_of(recording: Recording) -> Any:
    (found,) = recording.of_type(BUDGET)
    return found.inputs


def test_a_stack_without_alerts_needs_no_billing_account(values: Values) -> None:
    assert run_program(values | {"budget": {"usd_per_hour": 1e6}}).of_type(BUDGET) == []


def test_a_budget_counts_everything_in_the_project_by_the_month(values: Values) -> None:
    found = budget_of(declared(values))
    assert found["budgetFilter"] == {"projects": [f"projects/{PROJECT_NUMBER}"], "calendarPeriod": "MONTH"}
    assert found["amount"] == {"specifiedAmount": {"currencyCode": "USD", "units": "30000"}}


def test_people_are_alerted_at_each_percentage_and_when_the_forecast_exceeds_the_amount(values: Values) -> None:
    rules = budget_of(declared(values, at_percent=[25, 80]))["thresholdRules"]
    assert [(rule["thresholdPercent"], rule["spendBasis"]) for rule in rules] == [
        (0.25, "CURRENT_SPEND"),
        (0.8, "CURRENT_SPEND"),
        (1.0, "FORECASTED_SPEND"),
    ]


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


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ({"billing_account": "my-account"}, "gcloud billing accounts list"),
        ({"usd_per_month": 0}, "budget.alerts.usd_per_month"),
        ({"at_percent": []}, "budget.alerts.at_percent"),
        ({"emails": [f"a{number}@example.com" for number in range(6)]}, "budget.alerts.emails"),
    ],
)
def test_alerts_that_the_api_would_refuse_are_refused_first(values: Values, alerts: Values, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(values | {"budget": {"alerts": ALERTS | alerts}})
    assert said in str(refused.value)

"""The Cloud Billing budget of a stack and its alerts.

It counts what Google bills, hours later, and stops nothing: `infra.cluster.queue_stop` does.
"""

from dataclasses import dataclass
from typing import Self

import pulumi
import pulumi_gcp as gcp

from infra.stack.settings.schema import BudgetAlerts
from infra.stack.settings.stack import Settings


@dataclass(frozen=True)
class BudgetArgs:
    """Name of the budget, the project that it counts, and its alerts."""

    name: str
    project: str
    project_number: pulumi.Input[str]
    alerts: BudgetAlerts

    @classmethod
    def of(cls, settings: Settings, alerts: BudgetAlerts, project_number: pulumi.Input[str]) -> Self:
        """Return the budget of a stack."""
        return cls(settings.cluster.name, settings.cloud.project, project_number, alerts)


class BillingBudget(pulumi.ComponentResource):
    """A budget per calendar month, with an email channel for each address."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:BillingBudget", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        channels = [
            gcp.monitoring.NotificationChannel(
                f"{name}-{email}",
                project=args.project,
                type="email",
                display_name=f"budget of {args.name}: {email}",
                labels={"email_address": email},
                opts=inside,
            )
            for email in args.alerts.emails
        ]
        # With the credentials of a person, this API requires the project whose quota a request uses
        # (https://cloud.google.com/billing/docs/how-to/budget-api-setup).
        google = gcp.Provider(
            "billing", project=args.project, billing_project=args.project, user_project_override=True, opts=inside
        )
        budget = _budget(args, [channel.id for channel in channels])
        gcp.billing.Budget(name, budget, opts=pulumi.ResourceOptions(parent=self, provider=google))
        self.register_outputs({})


def budget_alerts(
    settings: Settings, project_number: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare the budget that the stack file requests, if any."""
    budget = settings.budget
    if budget is None or budget.alerts is None:
        return []
    return [BillingBudget("budget", BudgetArgs.of(settings, budget.alerts, project_number), opts)]


def _budget(args: BudgetArgs, channels: list[pulumi.Output[str]]) -> gcp.billing.BudgetArgs:
    billing, alerts = gcp.billing, args.alerts
    thresholds = [
        billing.BudgetThresholdRuleArgs(threshold_percent=percent / 100, spend_basis="CURRENT_SPEND")
        for percent in alerts.at_percent
    ]
    forecast = billing.BudgetThresholdRuleArgs(threshold_percent=1.0, spend_basis="FORECASTED_SPEND")
    to_people = billing.BudgetAllUpdatesRuleArgs(
        monitoring_notification_channels=channels, disable_default_iam_recipients=True
    )
    return billing.BudgetArgs(
        billing_account=alerts.billing_account,
        display_name=args.name,
        # Costs without labels, such as those of traffic and logs, count too. So the filter is the project.
        budget_filter=billing.BudgetBudgetFilterArgs(
            projects=[pulumi.Output.concat("projects/", args.project_number)], calendar_period="MONTH"
        ),
        amount=billing.BudgetAmountArgs(
            specified_amount=billing.BudgetAmountSpecifiedAmountArgs(
                currency_code="USD", units=str(alerts.usd_per_month)
            )
        ),
        threshold_rules=[*thresholds, forecast],
        all_updates_rule=to_people if channels else None,
    )

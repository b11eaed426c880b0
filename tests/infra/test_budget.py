from tests.infra.recording import Values, run_program


def test_without_named_people_the_billing_administrators_are_alerted(values: Values) -> None:
    """`two-teams.yaml` of the golden files has a budget with named people."""
    alerts = {"billing_account": "012345-6789AB-CDEF01", "usd_per_month": 30000}
    (budget,) = run_program(values | {"budget": {"alerts": alerts}}).of_type("gcp:billing/budget:Budget")
    assert "allUpdatesRule" not in budget.inputs

"""What a stack must be that is to end by itself."""

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.recording import Values, stack_values

SECTION = {"source": "dev", "expires_at": "2026-03-01T18:00:00Z"}


def told(values: Values) -> dict[str, str]:
    try:
        parse(values | {"environment": values.get("environment", SECTION)})
    except SettingsError as error:
        return {fault.path: str(fault) for fault in error.errors}
    return {}


def test_its_namespaces_are_those_of_no_other_cluster(values: Values) -> None:
    assert told(values)["teams.research.namespace"].endswith("write multislice-dev-research")
    values["teams"]["research"]["namespace"] = "multislice-dev-research"
    assert told(values) == {}


def test_it_is_neither_protected_nor_on_reserved_chips() -> None:
    faults = told(stack_values("prod"))
    assert "got true; set it false" in faults["cluster.deletion_protection"]
    assert "the reservation v5p-cubes, which others count on" in faults["slices.cubes.capacity"]


@pytest.mark.parametrize("end", ["2026-03-01", "2026-13-01T00:00:00Z", "2026-03-01 18:00:00 +0000 UTC"])
def test_its_end_is_a_time(end: str, values: Values) -> None:
    values["environment"] = SECTION | {"expires_at": end}
    assert "expected a time in UTC, such as" in told(values)["environment.expires_at"]

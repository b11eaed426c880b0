"""Whom contract prices may name, and when there must be one."""

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.recording import Values


def told(values: Values) -> dict[str, str]:
    with pytest.raises(SettingsError) as raised:
        parse(values)
    return {fault.path: str(fault) for fault in raised.value.errors}


def test_a_price_is_of_a_slice_group(values: Values) -> None:
    values["prices"] = {"usd_per_chip_hour": {"trilium": 2.0}}
    assert "one of the slice groups trillium, got 'trilium'" in told(values)["prices.usd_per_chip_hour"]


@pytest.mark.parametrize("price", [0, -1, "free"])
def test_nothing_is_free(values: Values, price: object) -> None:
    values["prices"] = {"usd_per_chip_hour": {"trillium": price}}
    assert set(told(values)) == {"prices.usd_per_chip_hour.trillium"}


def test_nothing_is_bought_on_demand_at_an_unknown_price(values: Values) -> None:
    values["slices"]["trillium"] |= {"generation": "7x", "topology": "2x2x2", "capacity": "on-demand"}
    values["job"]["training"] = {"global_batch": 32}
    fault = told(values)["prices.usd_per_chip_hour.trillium"]
    assert "no list price of 7x on-demand is known anywhere, got nothing; write prices.usd_per_chip_hour" in fault
    values["prices"] = {"usd_per_chip_hour": {"trillium": 9.0}}
    assert parse(values).prices.usd_per_chip_hour == {"trillium": 9.0}


def test_an_unknown_price_elsewhere_is_no_fault(values: Values) -> None:
    values["slices"]["trillium"] |= {"generation": "7x", "topology": "2x2x2", "capacity": "spot"}
    values["job"]["training"] = {"global_batch": 32}
    assert parse(values)

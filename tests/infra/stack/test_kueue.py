"""Flavors and queues of Kueue."""

from infra.stack.kueue import flavor_name
from infra.stack.settings.read import parse
from tests.infra.one_job import only_group
from tests.infra.recording import Values


def test_a_group_whose_name_begins_like_a_capacity_shares_no_flavor_with_another(values: Values) -> None:
    spot, on_demand = (
        only_group(parse(values | {"slices": {"trillium": values["slices"]["trillium"] | {"capacity": capacity}}}))
        for capacity in ("spot", "on-demand")
    )
    names = {
        flavor_name(name, group, placement)
        for name in ("a", "tas-a", "spot-a", "on-demand-a", "tas-spot-a")
        for group in (spot, on_demand)
        for placement in ("exclusive-topology", "topology-aware")
    }
    assert len(names) == 20
    assert all(len(flavor_name("a" * 30, group, "topology-aware")) <= 63 for group in (spot, on_demand))

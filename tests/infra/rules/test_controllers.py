"""System nodes hold the controllers of a stack of its size."""

from copy import deepcopy

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.recording import Values, stack_values


def _fault(values: Values, machine_type: str, nodes: int) -> str | None:
    changed = deepcopy(values)
    changed["cluster"] |= {"system_machine_type": machine_type, "system_nodes": nodes}
    try:
        parse(changed)
    except SettingsError as error:
        return next((str(fault) for fault in error.errors if fault.path == "cluster.system_machine_type"), None)
    return None


@pytest.mark.parametrize(
    ("stack", "machine_type", "nodes", "fits"),
    [
        ("dev", "e2-standard-2", 1, True),
        ("scale", "e2-standard-4", 3, False),
        ("scale", "e2-standard-8", 3, True),
        ("scale", "e2-standard-8", 1, False),
        ("scale", "e2-highcpu-8", 3, False),
        ("scale", "m1-megamem-96", 1, True),
        ("dev", "e2-medium", 1, False),
        ("dev", "n2-custom-4-8192", 1, True),
        ("dev", "n2-custom-2-2048", 1, False),
        ("scale", "c3-standard-8-lssd", 3, True),
        ("scale", "c3-standard-4-lssd", 3, False),
    ],
)
def test_a_machine_is_refused_where_the_controllers_would_take_more_than_half_of_it(
    stack: str, machine_type: str, nodes: int, fits: bool
) -> None:
    """Nothing is known of a machine whose name does not tell its size."""
    assert (_fault(stack_values(stack), machine_type, nodes) is None) == fits


def test_the_fault_tells_what_is_needed() -> None:
    told = _fault(stack_values("scale"), "e2-standard-4", 3)
    assert told is not None
    assert "at least 5 vCPUs and 9.0 GiB" in told
    assert "4096 TPU hosts, got e2-standard-4" in told

"""The address by which other hosts reach a host."""

import socket

import pytest

from workloads.training.host import own_address
from workloads.training.runtime import HostPosition

POSITION = HostPosition(("host-a", "host-b"), worker=1, slice_count=1, slice=0)


@pytest.mark.parametrize(
    ("bound", "address"),
    [
        ("127.0.0.5:8482", "127.0.0.5"),
        ("[::1]:8482", "::1"),
        ("0.0.0.0:8482", "10.0.0.2"),
        ("[::]:8482", "10.0.0.2"),
        ("host-b:8482", "10.0.0.2"),
        (None, "10.0.0.2"),
    ],
)
def test_a_host_is_reached_where_it_is_bound_unless_that_stands_for_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch, bound: str | None, address: str
) -> None:
    monkeypatch.setattr(socket, "gethostbyname", {"host-b": "10.0.0.2"}.__getitem__)
    assert own_address(POSITION, {"JAX_COORDINATOR_BIND_ADDRESS": bound} if bound else {}) == address

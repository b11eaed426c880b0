import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.site import SITE_VARIABLE, Site, create, from_environment, taken_ports

NAME = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


def test_a_site_keeps_its_address_block(tmp_path: Path):
    first = create(tmp_path / "one")
    assert create(tmp_path / "one") == first


def test_only_its_owner_can_open_a_sandbox(tmp_path: Path):
    create(tmp_path / "one")
    (tmp_path / "one").chmod(0o755)
    create(tmp_path / "one")
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o700


def test_a_new_site_takes_a_block_whose_ports_are_free(tmp_path: Path):
    first = create(tmp_path / "one")
    with socket.create_server((first.address, first.api_server_port)):
        assert taken_ports(first) == [first.api_server_port]
        assert create(tmp_path / "two").block != first.block
    assert taken_ports(first) == []


def test_outside_a_sandbox_the_site_is_refused_with_the_command_that_makes_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(SITE_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="multislice up --sandbox"):
        from_environment()


@given(namespace=NAME, name=NAME, block=st.integers(64, 250))
def test_pods_live_in_their_block_and_never_on_a_server_or_service_address(namespace: str, name: str, block: int):
    parts = [int(part) for part in Site(Path(), block).pod_address(namespace, name).split(".")]
    assert parts[:2] == [127, block]
    assert 1 <= parts[2] <= 127
    assert 1 <= parts[3] <= 254

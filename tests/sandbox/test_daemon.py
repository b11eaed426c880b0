import socket
from pathlib import Path

import pytest

from sandbox import daemon
from sandbox.daemon import SandboxError
from sandbox.site import create
from tests.chain.stack import ignore


def test_a_taken_port_is_named_and_nothing_is_started(tmp_path: Path):
    site = create(tmp_path)
    with (
        socket.create_server((site.address, site.gcs_port)),
        pytest.raises(SandboxError, match=rf"needs these ports of {site.address}.*: {site.gcs_port}; find it with"),
    ):
        daemon.start(site, ignore)
    assert daemon.running(site) is None


def test_a_sandbox_that_does_not_run_is_not_stopped(tmp_path: Path):
    assert not daemon.stop(create(tmp_path))

import socket
from pathlib import Path

import pytest

from sandbox import daemon
from sandbox.daemon import SandboxError, webhook_port_error
from sandbox.site import create
from tests.chain.stack import ignore


def test_the_error_for_a_user_who_may_not_serve_webhooks_names_the_command_that_allows_it():
    fault = webhook_port_error(user=1000, first_unprivileged_port=1024)
    assert fault is not None
    assert "sudo sysctl net.ipv4.ip_unprivileged_port_start=443" in fault


def test_root_and_users_of_an_open_machine_may_serve_webhooks():
    assert webhook_port_error(user=0, first_unprivileged_port=1024) is None
    assert webhook_port_error(user=1000, first_unprivileged_port=443) is None


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

"""What a killed engine left: whose lock it is, and what of it exists."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from sandbox.providers.cloud import Cloud
from sandbox.recovery import Pending, dead_lock, pending, refresh_flags
from sandbox.site import Site

POOL = "gcp:container/nodePool:NodePool"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 99)


def _locked(site: Site, pid: int, host: str) -> None:
    folder = site.root / "state" / ".pulumi" / "locks" / "organization" / "tpu-multislice" / "local"
    folder.mkdir(parents=True)
    (folder / "lock.json").write_text(json.dumps({"pid": pid, "hostname": host, "username": "me"}))


def _ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_lock_is_dead_when_its_process_has_ended(site: Site) -> None:
    assert dead_lock(site, "local") is None
    _locked(site, pid := _ended(), socket.gethostname())
    assert dead_lock(site, "local") == pid
    assert dead_lock(site, "other") is None


def test_a_lock_of_a_process_that_runs_is_left_alone(site: Site) -> None:
    _locked(site, os.getpid(), socket.gethostname())
    assert dead_lock(site, "local") is None


def test_a_lock_of_another_machine_is_left_alone(site: Site) -> None:
    _locked(site, _ended(), "elsewhere")
    assert dead_lock(site, "local") is None


def test_what_was_made_is_taken_in_and_what_was_not_is_forgotten(site: Site) -> None:
    Cloud(site.cloud).keep(POOL, "pools/first", {"name": "first", "nodeCount": 2})
    Cloud(site.cloud).keep(POOL, "pools/known", {"name": "known"})
    creating = [
        {"type": "creating", "resource": {"urn": f"urn:{name}", "type": POOL, "inputs": {"name": name}}}
        for name in ("first", "second")
    ]
    deployment = {"resources": [{"type": POOL, "id": "pools/known"}], "pending_operations": creating}
    found = pending(site, deployment)
    assert found == [Pending("urn:first", "pools/first"), Pending("urn:second", None)]
    assert refresh_flags(found) == [
        "--import-pending-creates=urn:first",
        "--import-pending-creates=pools/first",
        "--clear-pending-creates",
    ]


def test_an_object_of_a_cluster_that_does_not_answer_was_not_made(site: Site) -> None:
    inputs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    resource = {"urn": "urn:a", "type": "kubernetes:core/v1:ConfigMap", "inputs": inputs}
    assert pending(site, {"pending_operations": [{"type": "creating", "resource": resource}]}) == [
        Pending("urn:a", None)
    ]

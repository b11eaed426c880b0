"""What a killed engine left: whose lock it is, and what of it exists."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from sandbox.providers.cloud import Cloud
from sandbox.recovery import Holder, lock_holder, pending, taken_in, unread
from sandbox.site import Site

POOL = "gcp:container/nodePool:NodePool"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 99)


def _locked(site: Site, pid: int, host: str) -> Path:
    folder = site.root / "state" / ".pulumi" / "locks" / "organization" / "tpu-multislice" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "lock.json"
    lock.write_text(json.dumps({"pid": pid, "hostname": host, "username": "me"}))
    return lock


def _ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_holder_of_a_lock_differs_from_a_process_that_has_ended(site: Site) -> None:
    assert lock_holder(site, "local") is None
    _locked(site, pid := _ended(), socket.gethostname())
    assert lock_holder(site, "local") == Holder(pid, runs=False)
    assert lock_holder(site, "other") is None
    _locked(site, os.getpid(), socket.gethostname())
    assert lock_holder(site, "local") == Holder(os.getpid(), runs=True)


def test_a_process_that_got_the_pid_after_a_restart_of_the_machine_is_not_the_holder(site: Site) -> None:
    lock = _locked(site, os.getpid(), socket.gethostname())
    os.utime(lock, (1e9, 1e9))
    assert lock_holder(site, "local") == Holder(os.getpid(), runs=False)


def test_a_killed_process_that_was_not_waited_for_has_ended(site: Site) -> None:
    killed = subprocess.Popen(["sleep", "60"])
    _locked(site, killed.pid, socket.gethostname())
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert lock_holder(site, "local") == Holder(killed.pid, runs=False)
    killed.wait()


def test_a_lock_of_another_machine_is_not_touched(site: Site) -> None:
    _locked(site, _ended(), "elsewhere")
    assert lock_holder(site, "local") is None


def test_what_was_made_is_taken_in_and_what_was_not_is_forgotten(site: Site) -> None:
    Cloud(site.cloud).keep(POOL, "pools/first", {"name": "first", "nodeCount": 2})
    Cloud(site.cloud).keep(POOL, "pools/known", {"name": "known"})
    creating = [
        {"type": "creating", "resource": {"urn": f"urn:{name}", "type": POOL, "inputs": {"name": name}}}
        for name in ("first", "second")
    ]
    deployment = {
        "resources": [{"urn": "urn:known", "type": POOL, "id": "pools/known"}],
        "pending_operations": creating,
    }
    found = pending(site, deployment)
    assert found == {"urn:first": "pools/first", "urn:second": None}
    assert taken_in(deployment, found) == {
        "resources": [
            {"urn": "urn:known", "type": POOL, "id": "pools/known"},
            {"urn": "urn:first", "type": POOL, "inputs": {"name": "first"}, "id": "pools/first"},
        ],
        "pending_operations": [],
    }


def test_a_resource_that_was_being_replaced_comes_in_the_place_of_the_one_that_is_gone(site: Site) -> None:
    Cloud(site.cloud).keep(POOL, "pools/first", {"name": "first"})
    gone = {"urn": "urn:first", "type": POOL, "id": "pools/first", "outputs": {}, "pendingReplacement": True}
    after = {"urn": "urn:after", "type": POOL, "id": "pools/after", "outputs": {}, "dependencies": ["urn:first"]}
    resource = {"urn": "urn:first", "type": POOL, "inputs": {"name": "first"}}
    deployment = {"resources": [gone, after], "pending_operations": [{"type": "creating", "resource": resource}]}
    state = taken_in(deployment, pending(site, deployment))
    assert state["resources"] == [{**resource, "id": "pools/first"}, after]
    assert unread(state) == ["urn:first"]


def test_an_object_of_a_cluster_that_does_not_answer_was_not_made(site: Site) -> None:
    inputs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    resource = {"urn": "urn:a", "type": "kubernetes:core/v1:ConfigMap", "inputs": inputs}
    assert pending(site, {"pending_operations": [{"type": "creating", "resource": resource}]}) == {"urn:a": None}

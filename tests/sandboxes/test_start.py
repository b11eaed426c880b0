from pathlib import Path

import pytest

from sandbox import builds, daemon
from sandbox.daemon import SandboxError
from sandbox.site import create, taken_ports
from tests.chain.stack import ignore, processes_of, wait_until

pytestmark = pytest.mark.complete


def test_a_sandbox_that_cannot_start_cleans_up_and_says_why(tmp_path: Path):
    builds.prepare(ignore)
    site = create(tmp_path / "sandbox")
    (site.root / "etcd").write_text("not a folder")
    with pytest.raises(SandboxError, match=r"did not start; nothing is left running.*(?s:.)*etcd ended with exit code"):
        daemon.start(site, ignore)
    assert daemon.running(site) is None
    assert taken_ports(site) == []
    wait_until(lambda: processes_of(site) == [], lambda: str(processes_of(site)))

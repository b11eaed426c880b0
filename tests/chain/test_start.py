from pathlib import Path

import psutil
import pytest

from sandbox import daemon, programs
from sandbox.daemon import SandboxError
from sandbox.site import create, taken_ports
from tests.chain.stack import ignore, wait_until


def test_a_sandbox_that_cannot_start_cleans_up_and_says_why(tmp_path: Path):
    programs.prepare(ignore)
    site = create(tmp_path / "sandbox")
    site.etcd_data.write_text("not a folder")
    with pytest.raises(SandboxError, match=r"did not start; nothing is left running.*(?s:.)*etcd ended with exit code"):
        daemon.start(site, ignore)
    assert daemon.running(site) is None
    assert taken_ports(site) == []

    def processes() -> list[psutil.Process]:
        every = psutil.process_iter(["cmdline"])
        return [process for process in every if str(site.root) in " ".join(process.info["cmdline"] or [])]

    wait_until(lambda: processes() == [], 5, lambda: str(processes()))

import os
import subprocess
import sys
from pathlib import Path

from sandbox.site import SITE_VARIABLE, create
from tests.checkout import ROOT


def test_a_plugin_ends_with_the_engine_that_started_it(tmp_path: Path) -> None:
    script = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); p.stdout.readline()"
    environment = os.environ | {SITE_VARIABLE: str(create(tmp_path).root), "PYTHONPATH": str(ROOT)}
    plugin = [sys.executable, "-m", "sandbox.providers.gcp", "127.0.0.1:1"]
    engine = [sys.executable, "-c", script, *plugin]
    # The plugin holds this pipe open as its stderr: reading ends only when the plugin has ended too.
    ended = subprocess.run(engine, stderr=subprocess.PIPE, env=environment, timeout=30, check=False)
    assert ended.returncode == 0

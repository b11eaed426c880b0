"""What runs in the pods, run here."""

import os
import subprocess
import time
from pathlib import Path

from tests.infra.one_job import template_of
from tests.infra.recording import Values
from tests.infra.stack.settings.test_containers import rendered


def test_a_file_is_alive_as_long_as_it_is_young(values: Values, tmp_path: Path) -> None:
    heartbeat = {"file": "/tmp/alive", "silence_seconds": 300}
    (container,) = template_of(rendered(values, heartbeat=heartbeat))["spec"]["containers"]
    words = container["livenessProbe"]["exec"]["command"]
    command = [str(tmp_path / "alive") if word == "/tmp/alive" else word for word in words]

    def alive() -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not alive()
    (tmp_path / "alive").touch()
    assert alive()
    old = time.time() - 302
    os.utime(tmp_path / "alive", (old, old))
    assert not alive()

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from multislice_run.pod import METRICS_PORT
from tests.checkout import ROOT
from tests.multislice_run.test_attempt import PROGRAM

RESTORES = "step = int(saved.read_text()) if saved.exists() else 0"
BREAKS = {
    "no records": ("with Attempt", "if True: sys.exit(0)\nwith Attempt", "ended with exit code 0 without one"),
    "no resume": (RESTORES, "step = 0", "got step 0; restore the newest checkpoint"),
    "no end by SIGTERM": ("attempt.stopping(step)", "False", "ran for|expected an end|expected exit code 143"),
    "another end": ("raise Preempted(", "raise ValueError(", "expected exit code 143 after SIGTERM, got 1"),
    "no save before the end": (
        "if stopping or step % 5 == 0:",
        "if not stopping and step % 5 == 0:",
        "the last one before SIGTERM",
    ),
    "a failure at the end": ('assert "jax"', 'sys.exit(3)\nassert "jax"', "expected exit code 0 at the end, got 3"),
}


def check(folder: Path, program: str, minutes: float) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program)
    command = ["check", "--minutes", str(minutes), "--", sys.executable, str(path), "400", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-m", "multislice_run", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_program_that_keeps_the_contract_passes_whatever_listens_at_its_port(tmp_path: Path) -> None:
    with ExitStack() as elsewhere:
        with suppress(OSError):  # Something listens there already.
            elsewhere.enter_context(socket.create_server(("127.0.0.1", METRICS_PORT)))
        done = check(tmp_path, PROGRAM, minutes=3)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["ok"] * 3


@pytest.mark.costs(cpu_seconds=10)
def test_a_program_that_breaks_it_does_not_run_on(tmp_path: Path) -> None:
    noted = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))\nwith Attempt"
    done = check(tmp_path, PROGRAM.replace(RESTORES, "step = 0").replace("with Attempt", noted), minutes=0.5)
    assert "restore the newest checkpoint" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_command_that_is_no_program_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "multislice_run", "check", "--", str(tmp_path / "none")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.startswith("broken: expected a program")) == (1, True)


@pytest.mark.complete
@pytest.mark.parametrize(("here", "there", "said"), BREAKS.values(), ids=BREAKS)
def test_a_program_that_breaks_it_is_told_what_to_change(tmp_path: Path, here: str, there: str, said: str) -> None:
    assert here in PROGRAM
    done = check(tmp_path, PROGRAM.replace(here, there), minutes=0.5)
    assert done.returncode == 1
    (broken,) = (line for line in done.stderr.splitlines() if line.startswith("broken: "))
    assert any(each in broken for each in said.split("|")), broken

"""Starts, finds and stops the sandbox's background process, which runs `sandbox.serve`.

Three files describe the process: `daemon.lock`, which it holds while it runs, `daemon.pid`, and `phase.json` with the
progress of its start.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from infra.stack.command_lines import UserError
from infra.stack.project import CHECKOUT
from sandbox.servers import holds_within, log_end
from sandbox.site import Site, taken_ports

READY = "ready"
"""Last phase that `start` reports. From then on nodes, queues and pods work."""

_START_SECONDS = 120
_STOP_SECONDS = 60
_LOG_LINES_SHOWN = 10


class SandboxError(UserError):
    """Raised when the sandbox cannot start or stop. The message says why and what to do."""


def running(site: Site) -> int | None:
    """Return the pid of the site's daemon, or None."""
    held = lock(site)
    try:
        held.acquire(timeout=0)
    except Timeout:
        return int(site.daemon_pid.read_text())
    held.release()
    return None


def start(site: Site, on_phase: Callable[[str], None]) -> None:
    """Start the daemon unless it is running. Returns when the Kubernetes API answers.

    `sandbox.builds.prepare` must have built the programs. `on_phase` receives the name of each phase of the start.

    Raises:
        SandboxError: a port is in use, or a server did not start. Nothing is left running.
    """
    if running(site) is not None:
        on_phase(READY)
        return
    if ports := taken_ports(site):
        listed = ", ".join(str(port) for port in ports)
        raise SandboxError(
            f"the sandbox needs these ports of {site.address}, and something else listens there: {listed};"
            f" find it with `ss -ltnp src {site.address}` and stop it, then run the command again"
        )
    site.logs.mkdir(parents=True, exist_ok=True)
    (site.root / "phase.json").unlink(missing_ok=True)
    log = site.logs / "daemon.log"
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.serve", str(site.root)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _follow_start(site, daemon, log, on_phase)


def stop(site: Site) -> bool:
    """Stop the daemon and everything it runs. Return False if it was not running.

    Raises SandboxError if it still runs after a minute.
    """
    pid = running(site)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    if not holds_within(_STOP_SECONDS, lambda: running(site) is None):
        raise SandboxError(f"the sandbox (pid {pid}) did not stop within {_STOP_SECONDS} s; run `kill -9 {pid}`")
    return True


def _follow_start(site: Site, daemon: subprocess.Popen[bytes], log: Path, on_phase: Callable[[str], None]) -> None:
    reported = ""

    def settled() -> bool:
        nonlocal reported
        if (phase := _read_phase(site)) != reported:
            reported = phase
            on_phase(phase)
        return reported == READY or daemon.poll() is not None

    holds_within(_START_SECONDS, settled)
    if _read_phase(site) != READY:
        daemon.terminate()
        daemon.wait()
        raise SandboxError(f"the sandbox did not start; nothing is left running. See {log_end(log, _LOG_LINES_SHOWN)}")


def lock(site: Site) -> FileLock:
    """Return the lock that the daemon holds while it runs."""
    site.root.mkdir(parents=True, exist_ok=True)
    return FileLock(site.root / "daemon.lock", is_singleton=False)


def _read_phase(site: Site) -> str:
    try:
        return json.loads((site.root / "phase.json").read_text())["phase"]
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


def report_phase(site: Site, phase: str) -> None:
    """Write the phase of the start; the daemon calls this."""
    partial = site.root / "phase.partial"
    partial.write_text(json.dumps({"phase": phase}))
    partial.replace(site.root / "phase.json")

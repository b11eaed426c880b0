"""The sandbox's background process: starts every server, runs the operators and the node agent, stops all.

`start` and `stop` are for the commands; `python -m sandbox.daemon FOLDER` is the process itself.
It stops by itself on SIGTERM, when one of its servers ends, or after `_LIFETIME_SECONDS`.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from sandbox import certificates
from sandbox.site import SITE_VARIABLE, Site, load, taken_ports

CHECKOUT = Path(__file__).parent.parent

READY = "ready"
"""Last phase that `start` reports; nodes, queues and pods are served from here on."""

_LIFETIME_SECONDS = 12 * 3600
_START_SECONDS = 120
_STOP_SECONDS = 60
_POLL_SECONDS = 0.1
_LOG_LINES_TOLD = 10

_log = logging.getLogger(__name__)


class SandboxError(RuntimeError):
    """The sandbox cannot start or stop; the message says why and what to do."""


def running(site: Site) -> int | None:
    """Pid of the site's daemon, or None."""
    lock = _lock(site)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return int(site.daemon_pid.read_text())
    lock.release()
    return None


def start(site: Site, on_phase: Callable[[str], None]) -> None:
    """Start the daemon unless it runs; returns when the Kubernetes API answers.

    The programs must be there (`sandbox.programs.prepare`).

    Raises:
        SandboxError: a port is taken, or a server did not start. Nothing is left running.
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
    _phase_file(site).unlink(missing_ok=True)
    log = site.logs / "daemon.log"
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "sandbox.daemon", str(site.root)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _follow_start(site, daemon, log, on_phase)


def stop(site: Site) -> bool:
    """Stop the daemon and everything it runs; False when it was not running.

    Raises:
        SandboxError: it is still there after a minute.
    """
    pid = running(site)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while running(site) is not None:
        if time.monotonic() > deadline:
            raise SandboxError(f"the sandbox (pid {pid}) did not stop within {_STOP_SECONDS} s; run `kill -9 {pid}`")
        time.sleep(_POLL_SECONDS)
    return True


def _follow_start(site: Site, daemon: subprocess.Popen[bytes], log: Path, on_phase: Callable[[str], None]) -> None:
    deadline, told = time.monotonic() + _START_SECONDS, ""
    while told != READY:
        phase = _read_phase(site)
        if phase != told:
            told = phase
            on_phase(phase)
        if daemon.poll() is not None or time.monotonic() > deadline:
            daemon.terminate()
            daemon.wait()
            lines = "".join(f"\n  {line}" for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES_TOLD:])
            raise SandboxError(f"the sandbox did not start; nothing is left running. The end of {log}:{lines}")
        time.sleep(_POLL_SECONDS)


def _lock(site: Site) -> FileLock:
    site.root.mkdir(parents=True, exist_ok=True)
    return FileLock(site.root / "daemon.lock", is_singleton=False)


def _phase_file(site: Site) -> Path:
    return site.root / "phase.json"


def _read_phase(site: Site) -> str:
    try:
        return json.loads(_phase_file(site).read_text())["phase"]
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


def _serve(site: Site) -> int:
    """Run the sandbox until something ends it; the exit status is 0 only when it was told to stop."""
    from sandbox.control_plane import ControlPlane
    from sandbox.gcs import start_gcs
    from sandbox.programs import found

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    programs = found()
    control_plane = ControlPlane(site, programs)
    workers: list[threading.Thread] = []
    gcs = None
    try:
        _tell(site, "certificates")
        certificates.ensure(site)
        _tell(site, "storage")
        gcs = start_gcs(site, programs)
        _tell(site, "API server")
        control_plane.start_api()
        _tell(site, "controllers")
        control_plane.start_controllers()
        workers += _start_workers(site, programs, stopping)
        _tell(site, READY)
        return _watch(control_plane, stopping)
    finally:
        stopping.set()
        for worker in workers:
            worker.join()
        control_plane.stop()
        if gcs is not None:
            gcs.stop(_STOP_SECONDS)


def _start_workers(site: Site, programs: "Programs", stopping: threading.Event) -> list[threading.Thread]:
    from sandbox.node_agent import NodeAgent
    from sandbox.operators import Operators

    agent = NodeAgent(site, Path(sys.executable), CHECKOUT)
    runs = {"operators": Operators(site, programs).run, "node-agent": agent.run}
    workers = [threading.Thread(target=run, args=(stopping,), name=name) for name, run in runs.items()]
    for worker in workers:
        worker.start()
    return workers


def _watch(control_plane: "ControlPlane", stopping: threading.Event) -> int:
    deadline = time.monotonic() + _LIFETIME_SECONDS
    while not stopping.wait(1):
        if ended := control_plane.ended():
            _log.error("%s ended; stopping the sandbox", ", ".join(ended))
            return 1
        if time.monotonic() > deadline:
            _log.warning("stopping after %d hours; `make up` starts it again", _LIFETIME_SECONDS // 3600)
            return 0
    return 0


def _tell(site: Site, phase: str) -> None:
    partial = _phase_file(site).with_suffix(".partial")
    partial.write_text(json.dumps({"phase": phase}))
    partial.replace(_phase_file(site))


def main() -> int:
    """Run as the daemon of the site in the folder given as the one argument."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    site = load(Path(sys.argv[1]))
    os.environ[SITE_VARIABLE] = str(site.root)
    with _lock(site).acquire(timeout=5):
        site.daemon_pid.write_text(str(os.getpid()))
        return _serve(site)


if __name__ == "__main__":
    sys.exit(main())

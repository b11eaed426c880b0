"""The sandbox's background process, `python -m sandbox.serve FOLDER`.

Starts every server and restarts it when it ends, and runs the operators and the node agent. Stops everything on
SIGTERM, when a server keeps ending, or after `_LIFETIME_SECONDS`.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sandbox import certificates, daemon
from sandbox.egress import Egress
from sandbox.node_agent.agent import NodeAgent
from sandbox.operators import Operators
from sandbox.programs import found
from sandbox.servers import ServerError, Supervision, start_api, start_controllers, start_gcs
from sandbox.site import SITE_VARIABLE, Site, load, start_command

_LIFETIME_SECONDS = 12 * 3600
_LOCK_SECONDS = 5

_log = logging.getLogger(__name__)


def serve(site: Site, stopping: threading.Event) -> int:
    """Run the sandbox until it is stopped. Return the exit status, 1 if a server could not stay up."""
    programs = found()
    supervision = Supervision(site.servers)
    workers: list[threading.Thread] = []

    def work(run: Callable[[threading.Event], None]) -> None:
        workers.append(threading.Thread(target=run, args=(stopping,)))
        workers[-1].start()

    try:
        daemon.report_phase(site, "certificates")
        certificates.ensure(site)
        daemon.report_phase(site, "storage")
        start_gcs(site, programs, supervision)
        daemon.report_phase(site, "API server")
        work(Egress(site).run)
        start_api(site, programs, supervision)
        start_controllers(site, programs, supervision)
        work(Operators(site, programs).run)
        work(NodeAgent(site, Path(sys.executable), daemon.CHECKOUT).run)
        daemon.report_phase(site, daemon.READY)
        return _watch(site, supervision, stopping)
    finally:
        stopping.set()
        for worker in workers:
            worker.join()
        supervision.stop()


def _watch(site: Site, supervision: Supervision, stopping: threading.Event) -> int:
    deadline = time.monotonic() + _LIFETIME_SECONDS
    while not stopping.wait(1):
        try:
            supervision.tend()
        except ServerError as error:
            _log.error("stopping the sandbox: %s", error)
            return 1
        if time.monotonic() > deadline:
            start = start_command(site.root)
            _log.warning("stopping after %d hours; `%s` starts it again", _LIFETIME_SECONDS // 3600, start)
            return 0
    return 0


def main() -> int:
    """Run the daemon of the site in the folder given as the only argument."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    site = load(Path(sys.argv[1]))
    os.environ[SITE_VARIABLE] = str(site.root)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with daemon.lock(site).acquire(timeout=_LOCK_SECONDS):
        site.daemon_pid.write_text(str(os.getpid()))
        return serve(site, stopping)


if __name__ == "__main__":
    sys.exit(main())

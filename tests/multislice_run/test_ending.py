"""How a process ends after a failure."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from multislice_run.ending import LINGER_SECONDS

LOSES_ANOTHER = """
import signal, sys, threading
from etils import epath
from multislice_run.ending import Ending, Failure
from multislice_run.attempt_facts import AttemptFacts

signal.signal(signal.SIGTERM, lambda *_: print("never"))
ending = Ending(epath.Path(sys.argv[1]), AttemptFacts("run-1", 0, 0.0, None, 1, None), "host-a")
failure = Failure.of_lost_host("host-b", "host-a")
threading.Thread(target=ending.fail, args=(failure,)).start()
# The main thread waits in a collective that cannot end. No handler of Python runs there.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.sigwait({signal.SIGUSR1})
"""


@contextmanager
def losing_another(folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A host that has just written its record about the loss of another one."""
    with subprocess.Popen([sys.executable, "-c", LOSES_ANOTHER, str(folder)], stdout=subprocess.PIPE) as process:
        try:
            records = folder / "failures" / "run-1"
            while not (found := [*records.glob("*.json")]) or not found[0].read_text():
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def test_a_host_that_lost_another_one_lets_it_end_first(tmp_path: Path) -> None:
    with losing_another(tmp_path) as process:
        assert process.wait(60) == 134
    ended = time.time()
    (path,) = tmp_path.glob("failures/run-1/*.json")
    record = json.loads(path.read_text())
    assert ended - record["time"] > LINGER_SECONDS
    assert record["cause"] == (
        "another host is gone; see its own failure for the cause: the connection to host-b has ended"
    )


def test_a_host_that_lost_another_one_ends_at_once_if_its_pod_is_deleted(tmp_path: Path) -> None:
    with losing_another(tmp_path) as process:
        while process.poll() is None:
            # The first one may come while the record is still being written.
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.returncode == -signal.SIGABRT

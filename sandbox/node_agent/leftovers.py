"""The end of pod processes that no process group holds: those of a killed agent, and runaways.

Run as a module it waits for the end of its parent, however that comes, and cleans up after it.
"""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

FOLDER_VARIABLE = "TPU_MULTISLICE_POD"
"""Names the pod's working folder in the environment of each of its processes, and so marks them."""


def end_leftovers(folder: Path) -> None:
    """Kill every process of a pod whose working folder is `folder` or in it."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            marker = process.environ().get(FOLDER_VARIABLE)
            if marker is not None and Path(marker).is_relative_to(folder):
                process.kill()


def start_reaper(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that ends leftovers in `folder` when this one is gone or closes its pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


if __name__ == "__main__":
    sys.stdin.read()
    end_leftovers(Path(sys.argv[1]))

"""Run the node agent of the site named by the environment, until interrupted: for trials by hand."""

import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from sandbox import site
from sandbox.node_agent.agent import NodeAgent


def main() -> None:
    """Run the agent with this Python and this checkout until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    NodeAgent(site.from_environment(), Path(sys.executable), Path(__file__).parents[2]).run(stop)


if __name__ == "__main__":
    main()

"""`multislice dashboard`: serves until Ctrl-C."""

import threading

from rich.console import Console

from cli.dashboard.feed import Feed
from cli.dashboard.server import ADDRESS, Dashboard
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.observe import Observer


def dashboard(deployed: Deployed, port: int, console: Console, stop: threading.Event) -> int:
    """Serve the page until `stop` is set, or Ctrl-C; the exit status.

    Raises:
        Halt: the port is taken.
    """
    feed = Feed(Observer(deployed).look)
    try:
        server = Dashboard(feed, port)
    except OSError as fault:
        raise Halt(f"--port must be a free one on {ADDRESS}, got {port}: {fault}; leave it out to get one") from None
    thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
    feed.start()
    thread.start()
    console.print(f"stack {deployed.stack}: {server.url}\nEnd with Ctrl-C", soft_wrap=True)
    try:
        stop.wait()
    except KeyboardInterrupt:
        console.print("the page is closed; the jobs go on")
    finally:
        feed.close()
        server.shutdown()
        thread.join()
        server.server_close()
    return 0

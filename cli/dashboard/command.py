"""`multislice dashboard`: serves until Ctrl-C."""

import sys
import threading

from rich.console import Console

from cli.dashboard.feed import Feed
from cli.dashboard.server import ADDRESS, Dashboard
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.json import as_json
from cli.observed.observe import Observer


def dashboard(deployed: Deployed, port: int, console: Console, feed: Feed, *, json: bool) -> int:
    """Serve the page until the feed is closed, or Ctrl-C; the exit status.

    Raises:
        Halt: the port is taken.
    """
    try:
        server = Dashboard(feed, port)
    except OSError as fault:
        raise Halt(f"--port must be a free one on {ADDRESS}, got {port}: {fault}; leave it out to get one") from None
    thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
    feed.start()
    thread.start()
    if json:
        console.out(as_json({"stack": deployed.stack, "url": server.url, "state": f"{server.url}state"}))
        console.file.flush()
    else:
        console.print(f"stack {deployed.stack}: {server.url}\nEnd with Ctrl-C", soft_wrap=True)
    try:
        feed.wait()
    except KeyboardInterrupt:
        sys.stderr.write("the page is closed; the jobs go on\n")
    finally:
        feed.close()
        server.shutdown()
        thread.join()
        server.server_close()
    if feed.failed:
        raise Halt("the page is closed, for what is above kept it from being shown; the jobs go on")
    return 0


def feed_of(deployed: Deployed) -> Feed:
    """Looks at the stack again and again."""
    return Feed(Observer(deployed).look)

import io
import json
import socket
import threading
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

from cli.dashboard.command import dashboard
from cli.dashboard.feed import Feed
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.snapshot import Snapshot
from tests.cli.api_server import Played
from tests.cli.dashboard.conftest import Stack, wait_for
from tests.cli.standing import stack as standing


def deployed(folder: Path) -> Deployed:
    with Played() as nobody:
        return standing(nobody, folder)


def test_as_json_it_says_where_it_is_served_and_it_serves_until_its_feed_ends(stack: Stack, tmp_path: Path) -> None:
    feed, shown, found = Feed(stack.look), Console(file=io.StringIO(), width=100), list[int]()
    assert isinstance(shown.file, io.StringIO)
    told = shown.file
    serving = threading.Thread(
        target=lambda: found.append(dashboard(deployed(tmp_path), 0, shown, feed, json=True)), daemon=True
    )
    serving.start()
    wait_for(lambda: told.getvalue().endswith("}\n"))
    state = json.loads(told.getvalue())["state"]
    assert json.loads(urllib.request.urlopen(state, timeout=30).read())["stack"] == "dev"
    feed.close()
    serving.join(30)
    assert found == [0]


def test_a_port_that_is_taken_is_told(stack: Stack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Halt, match=f"--port must be a free one on 127.0.0.1, got {port}"):
            dashboard(deployed(tmp_path), port, Console(file=io.StringIO()), Feed(stack.look), json=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_page_that_shows_nothing_more_is_not_served_on(tmp_path: Path) -> None:
    def look() -> Snapshot:
        raise KeyError("what nobody thought of")

    feed = Feed(look)
    with feed.reading(), pytest.raises(Halt, match="the page is closed, for what is above"):
        dashboard(deployed(tmp_path), 0, Console(file=io.StringIO()), feed, json=False)

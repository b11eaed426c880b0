import http.client
import json
import urllib.error
import urllib.request
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli.dashboard import server as module
from cli.dashboard.server import Dashboard
from tests.cli.dashboard.conftest import Stack, wait_for


def ask(server: Dashboard, path: str, host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"{server.root}{path.removeprefix('/')}", headers={"Host": host} if host else {})
    return connection.getresponse()


def test_the_state_is_all_that_the_page_shows(server: Dashboard) -> None:
    state = json.loads(ask(server, "/state").read())
    (job,) = state["jobs"]
    assert (state["stack"], state["answered"], state["usd_per_hour"]) == ("dev", True, 21.6)
    assert (job["summary"]["name"], job["summary"]["state"], job["summary"]["usd"]) == ("tiny", "running", 54.0)
    assert {part["cause"] for part in job["goodput"]["parts"]} >= {"productive steps", "compilation"}
    assert [host["host"] for host in job["hosts"]][0] == "slice-0-0"
    assert "The job runs: step 5 of 5" in job["findings"][0]["what"]


def test_each_look_is_an_event(server: Dashboard, stack: Stack) -> None:
    answer = ask(server, "/events")
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert json.loads(answer.readline().removeprefix(b"data: "))["stack"] == "dev"
    stack.snapshot = replace(stack.snapshot, stack="changed")
    while b'"stack":"changed"' not in answer.readline():
        pass


def test_a_cluster_that_is_away_leaves_what_was_seen_last(server: Dashboard, stack: Stack) -> None:
    answer = ask(server, "/events")
    answer.readline()
    stack.snapshot = replace(stack.snapshot, answered=False, jobs=(), notes=("cannot read nodes",))
    while b'"answered":false' not in (line := answer.readline()):
        pass
    state = json.loads(line.removeprefix(b"data: "))
    assert (len(state["jobs"]), state["notes"]) == (1, ["cannot read nodes"])


def test_nobody_looks_while_nobody_reads(server: Dashboard, stack: Stack) -> None:
    ask(server, "/page.css").read()
    assert stack.looks == 0
    ask(server, "/state").read()
    assert stack.looks > 0


def test_what_was_seen_before_nobody_read_is_not_told(server: Dashboard, stack: Stack) -> None:
    ask(server, "/state").read()
    looks = stack.looks
    wait_for(lambda: server.feed.idle)
    stack.snapshot = replace(stack.snapshot, stack="later")
    assert json.loads(ask(server, "/state").read())["stack"] == "later"
    assert stack.looks > looks


def test_a_request_by_another_name_is_refused(server: Dashboard) -> None:
    for path in ("/", "/state", "/events"):
        assert ask(server, path, "attacker.example").status == 421
    assert ask(server, "/", f"attacker.example:{server.port}").status == 421
    assert ask(server, "/", f"localhost:{server.port}").status == 200


@pytest.mark.parametrize("path", ["/", "/state", "/events", "/page.js", "//state", "/wrong/state"])
def test_whoever_does_not_know_the_address_sees_nothing(server: Dashboard, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, b"dev" in answer.read()) == (404, False)


def test_only_loopback_is_listened_on(server: Dashboard) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/page/../server.py", "/../server.py", "/%2e%2e/server.py", "/favicon.ico"])
def test_no_other_file_is_served(server: Dashboard, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{server.url.rstrip('/')}{path}", timeout=30)


def test_every_answer_forbids_what_the_page_does_not_need(server: Dashboard) -> None:
    for path in ("/", "/page.js", "/state", "/missing"):
        answer = ask(server, path)
        policy = answer.getheader("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"


def test_nothing_changes_anything(server: Dashboard) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", f"{server.root}state", b"")
    assert connection.getresponse().status == 501


class _Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.inline += [name for name in found if name == "style" or name.startswith("on")]
        self.ids += [found["id"]] if "id" in found else []


def test_the_page_names_nothing_outside_itself_and_nothing_inline() -> None:
    folder = Path(module.__file__).parent / "page"
    markup = _Markup()
    markup.feed((folder / "page.html").read_text())
    assert markup.addresses == ["page.css", "page.js"]
    assert markup.inline == []
    assert len(markup.ids) == len(set(markup.ids))
    script = (folder / "page.js").read_text()
    assert "innerHTML" not in script
    assert [name for name in script.split('byId("')[1:] if name.partition('"')[0] not in markup.ids] == []


def test_the_end_of_the_command_ends_the_streams(server: Dashboard) -> None:
    answer = ask(server, "/events")
    answer.readline()
    server.feed.close()
    wait_for(lambda: not answer.readline())

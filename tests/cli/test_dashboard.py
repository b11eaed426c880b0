import http.client
import io
import json
import socket
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import Halt
from cli.dashboard import Dashboard, Pages, dashboard
from cli.deployed import Deployed
from cli.observed.observe import Observer
from tests.cli import api_objects
from tests.cli.api_objects import EVENTS, JOBS, JOBSETS, LOCAL_QUEUES, NODES, PODS, QUEUES, WORKLOADS
from tests.cli.api_server import Played, serving
from tests.cli.standing import stack
from tests.workloads.report.runs import crashed_and_resumed

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def deployed(server: Played, tmp_path: Path) -> Deployed:
    crashed_and_resumed(tmp_path / "tiny", 3600.0, 7200.0)
    return stack(server, tmp_path)


@pytest.fixture
def pages(deployed: Deployed) -> Generator[Dashboard]:
    with serving(Dashboard(Pages(Observer(deployed)), 0)) as made:
        yield made


def ask(pages: Dashboard, path: str, host: str | None = None, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=30)
    connection.request(method, path, headers={"Host": host} if host else {})
    return connection.getresponse()


def shown(pages: Dashboard, name: str = "") -> str:
    answer = ask(pages, f"{pages.root}{name}")
    assert answer.status == 200
    return answer.read().decode()


def test_the_stack_is_on_one_page_with_a_link_to_each_job(pages: Dashboard) -> None:
    page = shown(pages)
    for part in ("<h1>dev</h1>", "$21.60 an hour", 'href="research/tiny"', "5 of 5", "$54.00", "2 of 2", "admits jobs"):
        assert part in page


def test_the_page_of_a_job_says_what_happens_now_and_has_the_report_of_its_run(pages: Dashboard) -> None:
    page = shown(pages, "research/tiny")
    for part in ("tiny: running", "All hosts run", "gke-slice-0-0", "Where the time went", "Starts"):
        assert part in page


def test_a_job_without_a_run_has_a_page(pages: Dashboard, server: Played) -> None:
    server.change(JOBSETS, api_objects.jobset(name="other"))
    assert "The job has no run yet." in shown(pages, "research/other")


def test_the_page_follows_the_stack(pages: Dashboard, server: Played) -> None:
    answer = ask(pages, pages.root)
    assert int(answer.getheader("Refresh") or "0") >= 5
    server.change(JOBSETS, api_objects.jobset(name="new"))
    assert 'href="research/new"' in shown(pages)


def test_what_the_cluster_says_is_text_and_never_markup(pages: Dashboard, server: Played) -> None:
    about = {"kind": "JobSet", "name": "tiny"}
    event = {"metadata": {"name": "e", "uid": "e"}, "involvedObject": about, "reason": EVIL, "message": EVIL}
    server.collections[EVENTS] = [event]
    page = shown(pages, "research/tiny")
    assert EVIL not in page
    assert page.count("&lt;script&gt;") == 2


def test_a_cluster_that_does_not_answer_leaves_what_was_seen_last(pages: Dashboard, server: Played) -> None:
    shown(pages)
    for path in (NODES, QUEUES, JOBSETS, WORKLOADS, EVENTS, PODS, JOBS, LOCAL_QUEUES):
        server.refused[path] = 503
    page = shown(pages)
    assert "The cluster does not answer" in page
    assert "tiny" in page


def test_a_request_by_another_name_is_refused(pages: Dashboard) -> None:
    assert ask(pages, pages.root, "attacker.example").status == 421
    assert ask(pages, pages.root, f"attacker.example:{pages.port}").status == 421
    assert ask(pages, pages.root, f"localhost:{pages.port}").status == 200


@pytest.mark.parametrize("path", ["/", "/research/tiny", "//", "/wrong/research/tiny", "/../server.py"])
def test_somebody_who_does_not_know_the_address_sees_nothing(pages: Dashboard, path: str) -> None:
    answer = ask(pages, path)
    assert (answer.status, b"tiny" in answer.read()) == (404, False)


@pytest.mark.parametrize("name", ["research/gone", "favicon.ico", "../server.py", "%2e%2e/server.py"])
def test_nothing_but_pages_is_served(pages: Dashboard, name: str) -> None:
    assert ask(pages, f"{pages.root}{name}").status == 404


def test_only_loopback_is_listened_on_and_nothing_changes_anything(pages: Dashboard) -> None:
    assert pages.server_address[0] == "127.0.0.1"
    assert ask(pages, pages.root, method="POST").status == 501


def test_every_answer_forbids_scripts_and_what_comes_from_elsewhere(pages: Dashboard) -> None:
    for path in (pages.root, f"{pages.root}research/tiny", "/missing"):
        policy = ask(pages, path).getheader("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none';")
        assert "script-src" not in policy


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_a_page_loads_nothing(pages: Dashboard) -> None:
    addresses = _Addresses()
    addresses.feed(shown(pages) + shown(pages, "research/tiny"))
    assert addresses.found == ["research/tiny", ".."]


def test_a_port_that_is_taken_is_named(deployed: Deployed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Halt, match=f"--port must be a free port on 127.0.0.1, got {port}"):
            dashboard(deployed, port, Console(file=io.StringIO()), json=False)


def test_as_json_it_says_where_it_is_served_until_it_is_interrupted(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Dashboard) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Dashboard, "serve_forever", interrupted)
    written = io.StringIO()
    assert dashboard(deployed, 0, Console(file=written, width=200), json=True) == 0
    assert json.loads(written.getvalue())["url"].startswith("http://127.0.0.1:")

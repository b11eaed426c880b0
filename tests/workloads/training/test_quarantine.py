import http.client
import json
import threading
import urllib.error
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import certifi
import pytest

from workloads.spec import BAD_HOST_KEY, ExitCode
from workloads.training import quarantine
from workloads.training.failures import BadHost, Suspect, exit_code
from workloads.training.quarantine import OwnNode, set_aside
from workloads.training.runtime import HostPosition, Processes

BAD = BadHost("host b: device 3 multiplied wrongly", {Suspect(1, "b")})
TPU = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Node(OwnNode):
    """A node whose API server answers with these statuses, one after the other, then with success."""

    refusals: list[int] = field(default_factory=list[int])
    """Statuses of the answers. 0 is an answer that is not HTTP."""
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def _request(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        if body is None:
            return {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [TPU]}}
        if self.refusals:
            if not (status := self.refusals.pop(0)):
                raise http.client.BadStatusLine("rubbish")
            raise urllib.error.HTTPError("url", status, "", Message(), BytesIO(b'{"message": "not now"}'))
        self.sent.append(json.loads(body))
        return {}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "PAUSE_SECONDS", 0.0)


def ended(node: OwnNode | None, slice_: int = 1, others: Sequence[tuple[str, str] | None] = ()) -> BadHost:
    class Gathered(Processes):
        def gather(self, key: str, value: Any) -> list[Any]:
            return [value, *others]

    return set_aside(BAD, node, HostPosition(("a", "b"), 1, 2, slice_), Gathered(2, 4, "b"))


@pytest.mark.parametrize("refusals", [[], [409, 409], [503, 409, 0, 502]])
def test_the_mark_is_set_over_conflicts_and_says_why(refusals: list[int]) -> None:
    node = Node("node-b", "url", Path(), [*refusals])
    failure = ended(node)
    assert exit_code(failure) is ExitCode.BAD_HOST
    assert str(failure) == f"{BAD}; marked {BAD_HOST_KEY}: node-b; the next attempt runs elsewhere"
    (patch,) = node.sent
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {BAD_HOST_KEY: str(BAD)}}
    tpu, mark = patch["spec"]["taints"]
    assert tpu == TPU
    assert (mark["key"], mark["effect"]) == (BAD_HOST_KEY, "NoSchedule")
    assert abs(datetime.fromisoformat(mark["timeAdded"]) - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_is_refused_is_not_asked_again() -> None:
    node = Node("node-b", "url", Path(), [403, 200])
    assert "not now" in node.mark("a cause")
    assert node.refusals == [200]


@pytest.mark.parametrize("node", [None, Node("node-b", "url", Path(), [500] * 9)], ids=["no token", "no answer"])
def test_a_start_that_would_meet_the_host_again_counts(node: OwnNode | None) -> None:
    failure = ended(node)
    assert exit_code(failure) is ExitCode.CRASH
    assert str(failure).startswith(f"{BAD}; its slice may be used again, because some nodes could not be marked")
    assert str(failure).endswith("; marked: none")


def test_a_slice_that_is_marked_in_part_may_be_met_again() -> None:
    others = [("node-a", ""), None]
    failure = ended(None, others=others)
    assert exit_code(failure) is ExitCode.CRASH
    assert "b: no NODE_NAME" in str(failure)
    assert str(failure).endswith("; marked: node-a")
    both = ended(Node("node-b", "url", Path()), others=others)
    assert exit_code(both) is ExitCode.BAD_HOST
    assert "marked tpu-multislice.dev/bad-host: node-b, node-a;" in str(both)


def test_hosts_of_other_slices_mark_nothing() -> None:
    node = Node("node-c", "url", Path())
    ended(node, slice_=0)
    assert node.sent == []


ALL = [Suspect(slice_, host) for slice_ in range(2) for host in ("a", "b")]


@pytest.mark.parametrize(
    ("slices", "hosts", "suspects", "code", "said"),
    [
        (2, "ab", ALL, ExitCode.CRASH, "2 bad slices at once are more likely a software error"),
        (3, "ab", [ALL[0], ALL[2]], ExitCode.CRASH, "2 bad slices at once are more likely a software error"),
        (2, "ab", ALL[:2], ExitCode.BAD_HOST, "the next attempt runs elsewhere"),
        (1, "ab", ALL[:2], ExitCode.CRASH, "the cause may be the only slice or its software"),
        (1, "ab", ALL[:1], ExitCode.BAD_HOST, "the next attempt runs elsewhere"),
        (1, "a", ALL[:1], ExitCode.CRASH, "the cause may be the only slice or its software"),
    ],
)
def test_what_looks_like_software_marks_nothing_and_counts(
    slices: int, hosts: str, suspects: Sequence[Suspect], code: ExitCode, said: str
) -> None:
    node = Node("node-a", "url", Path())
    failure = set_aside(BadHost("x", suspects), node, HostPosition(tuple(hosts), 0, slices, 0), Processes(0, 1, "a"))
    assert (exit_code(failure), bool(node.sent)) == (code, code is ExitCode.BAD_HOST)
    assert said in str(failure)
    assert ("check the image, its libtpu" in str(failure)) is (code is ExitCode.CRASH)


def test_the_token_goes_past_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"metadata": {"resourceVersion": "7"}, "spec": {}}')

        do_PATCH = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            OwnNode("node-b", f"http://127.0.0.1:{server.server_port}", tmp_path).mark("a cause")
        finally:
            server.shutdown()
            serving.join()
    assert seen == ["Bearer secret"] * 2


def test_a_pod_knows_its_node_and_the_way_to_the_api_server(tmp_path: Path) -> None:
    variables = {"NODE_NAME": "node-b", "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert OwnNode.of(variables, tmp_path) is None
    (tmp_path / "token").write_text("secret")
    assert OwnNode.of({}, tmp_path) is None
    assert OwnNode.of({name: variables[name] for name in list(variables)[:2]}, tmp_path) is None
    assert OwnNode.of(variables, tmp_path) == OwnNode("node-b", "https://[fd00::1]:443", tmp_path)

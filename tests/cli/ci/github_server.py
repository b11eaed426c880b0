"""A GitHub on loopback that keeps comments and issues, as far as the workflows use its REST API."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.ci.github import Run

TOKEN = "token-of-the-workflow"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BOT = {"login": "github-actions[bot]", "type": "Bot"}
PERSON = {"login": "octocat", "type": "User"}

Item = dict[str, Any]


class GitHub:
    """What the server keeps; comments of all issues in one list, as their ids are one sequence."""

    def __init__(self) -> None:
        self.comments: list[Item] = []
        self.issues: list[Item] = []
        self.lacking_right = False
        self.commit = COMMIT
        self.listings = 0
        self.url = ""

    def run(self, token: str = TOKEN) -> Run:
        return Run(self.url, "https://github.example", "owner/name", "7", COMMIT, token)

    def add_comment(self, number: int, body: str, user: Item | None) -> Item:
        comment = {"id": len(self.comments) + 1, "issue": number, "body": body, "user": user}
        self.comments.append(comment | {"html_url": f"https://github.example/c/{comment['id']}"})
        return self.comments[-1]

    def add_issue(self, body: str, labels: list[str], user: Item) -> Item:
        number = len(self.issues) + 1
        url = f"https://github.example/i/{number}"
        issue = {"number": number, "state": "open", "body": body, "labels": labels, "user": user, "html_url": url}
        self.issues.append(issue)
        return issue

    def answer(self, method: str, path: str, content: Item) -> tuple[int, object]:
        split = urlsplit(path.removeprefix("/repos/owner/name/"))
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        if self.lacking_right and method != "GET":
            return 403, {"message": "Resource not accessible by integration"}
        match method, split.path.split("/"):
            case "GET", ["issues", number, "comments"]:
                return 200, self._page([item for item in self.comments if item["issue"] == int(number)], query)
            case "POST", ["issues", number, "comments"]:
                return 201, self.add_comment(int(number), content["body"], BOT)
            case "PATCH", ["issues", "comments", identifier]:
                return 200, self._changed(self.comments, "id", identifier, content)
            case "GET", ["issues"]:
                found = [issue for issue in self.issues if issue["state"] == query["state"]]
                return 200, self._page([issue for issue in found if query["labels"] in issue["labels"]], query)
            case "POST", ["issues"]:
                return 201, self.add_issue(content["body"], content["labels"], BOT) | {"title": content["title"]}
            case "PATCH", ["issues", number]:
                return 200, self._changed(self.issues, "number", number, content)
            case "GET", ["commits", "main"]:
                return 200, {"sha": self.commit}
            case _:
                return 404, {"message": "Not Found"}

    def _page(self, items: list[Item], query: dict[str, str]) -> list[Item]:
        self.listings += 1
        size, page = int(query["per_page"]), int(query["page"])
        return items[size * (page - 1) : size * page]

    def _changed(self, items: list[Item], key: str, value: str, content: Item) -> Item:
        item = next(item for item in items if item[key] == int(value))
        item.update(content)
        return item


@contextmanager
def github() -> Generator[GitHub]:
    """Serve until the context ends."""
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length) or b"{}")
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, said = 401, {"message": "Bad credentials"}
            elif not re.match(r"/repos/owner/name/", self.path):
                status, said = 404, {"message": "Not Found"}
            else:
                status, said = state.answer(self.command, self.path, content)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_POST = do_PATCH = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield state
        server.shutdown()

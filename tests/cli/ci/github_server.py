"""A GitHub on loopback that keeps comments, issues and environments, as far as its REST API is used here."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.ci.github import Access, Run

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
        self.protected = True
        self.environments: dict[str, Item] = {}
        """By name: the protection that the last call set, with `branches` and `variables`."""
        self.variables: dict[str, str] = {}
        """Of the repository."""
        self.changes: list[str] = []
        """Calls that changed environments and variables, in order."""

    def access(self, token: str = TOKEN) -> Access:
        return Access(self.url, "owner/name", token)

    def run(self, token: str = TOKEN) -> Run:
        return Run(self.access(token), "https://github.example", "7", COMMIT)

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
        split = urlsplit(path.removeprefix("/repos/owner/name").removeprefix("/"))
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
            case "GET", [""]:
                return 200, {"id": 4711}
            case "GET", ["branches", "main"]:
                return 200, {"protected": self.protected}
            case "GET", ["users", "octocat"]:
                return 200, {"id": 1}
            case "GET", ["orgs", "owner", "teams", "platform"]:
                return 200, {"id": 2}
            case _:
                return self._set_up(method, split.path, query, content)

    def _set_up(self, method: str, path: str, query: dict[str, str], content: Item) -> tuple[int, object]:
        if method != "GET":
            self.changes.append(f"{method} {path}")
        match method, path.split("/"):
            case "PUT", ["environments", name]:
                kept = self.environments.get(name, {"branches": {}, "variables": {}})
                self.environments[name] = {**kept, **content}
                return 200, {"name": name}
            case _, ["environments", name, *_] if name not in self.environments:
                return 404, {"message": "Not Found"}
            case "GET", ["environments", name, "deployment-branch-policies"]:
                branches = self.environments[name]["branches"]
                rows = [{"id": number, "name": branch} for number, branch in branches.items()]
                return 200, {"branch_policies": self._page(rows, query)}
            case "POST", ["environments", name, "deployment-branch-policies"]:
                branches = self.environments[name]["branches"]
                branches[max(branches, default=0) + 1] = content["name"]
                return 200, {}
            case "DELETE", ["environments", name, "deployment-branch-policies", number]:
                del self.environments[name]["branches"][int(number)]
                return 204, None
            case _, ["environments", name, "variables", *_]:
                return self._variable(method, self.environments[name]["variables"], query, content)
            case _, ["actions", "variables", *_]:
                return self._variable(method, self.variables, query, content)
            case _:
                return 404, {"message": "Not Found"}

    def _variable(self, method: str, kept: dict[str, str], query: dict[str, str], content: Item) -> tuple[int, object]:
        if method == "GET":
            return 200, {"variables": self._page([{"name": name, "value": kept[name]} for name in kept], query)}
        if (method == "POST") == (content["name"] in kept):
            return 409, {"message": "Already exists" if method == "POST" else "Not Found"}
        kept[content["name"]] = content["value"]
        return 204, None

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
            elif not re.match(r"/(repos/owner/name(/|$)|users/|orgs/)", self.path):
                status, said = 404, {"message": "Not Found"}
            else:
                status, said = state.answer(self.command, self.path, content)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"" if said is None else json.dumps(said).encode())

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield state
        server.shutdown()

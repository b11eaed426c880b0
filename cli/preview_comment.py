"""`python -m cli.preview_comment` posts a stack's preview on its pull request, for the workflow `preview.yml`.

Requests use GitHub's program `gh`, which handles the login, the pages of a listing and the errors. Each stack has one
comment. A hidden first line, the mark, identifies the one that an earlier run wrote.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.answer import Halt, exit_status
from infra.review.preview import MAX_CHARACTERS, mark
from workloads.terminal import inert

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

_BOT = "Bot"
"""Type of the user of a workflow. A text of a person is never overwritten, even if it has the mark."""
_NO_TEXT = "The command ended before it printed anything; see the messages of the run."


@dataclass(frozen=True)
class Run:
    """The workflow run of this process."""

    repository: str
    """Repository, as OWNER/NAME."""
    server_url: str
    run_id: str
    commit: str

    @property
    def link(self) -> str:
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


def current_run(environment: Mapping[str, str]) -> Run:
    """Return the run that the environment of a GitHub runner describes. Raise Halt if variables are missing."""
    names = ("GITHUB_REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_RUN_ID", "GITHUB_SHA")
    if missing := [name for name in names if not environment.get(name)]:
        raise Halt(f"expected the variables of a GitHub workflow; these are missing: {', '.join(missing)}")
    return Run(*(environment[name] for name in names))


def comment(stack: str, text: Path, pull_request: int, run: Run) -> str:
    """Post the preview of a stack on its pull request, in place of an earlier comment. Return its URL."""
    marked, repository = mark(stack), f"repos/{run.repository}"
    comments = f"{repository}/issues/{pull_request}/comments"
    earlier = _written(comments, marked)
    body = {"body": _body(marked, text, run)}
    if earlier:
        return _api(f"{repository}/issues/comments/{earlier['id']}", "PATCH", body)["html_url"]
    return _api(comments, "POST", body)["html_url"]


@app.command()
def main(
    stack: Annotated[str, typer.Option(help="Name of the stack file stacks/Pulumi.STACK.yaml.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="File with the Markdown to post.")],
    pull_request: Annotated[int, typer.Option(help="Number of the pull request.")],
) -> None:
    """Post a preview on its pull request, in place of the previous one."""

    def posted() -> int:
        print(comment(stack, text, pull_request, current_run(os.environ)))
        return 0

    raise typer.Exit(exit_status(posted))


def _api(path: str, method: str, content: Mapping[str, object]) -> Any:
    """Call GitHub's REST API and return its answer. Raise Halt as `_gh` does."""
    return json.loads(_gh("api", path, "--method", method, "--input", "-", stdin=json.dumps(content)))


def _gh(*words: str, stdin: str = "") -> str:
    """Run `gh` and return its output. Raise Halt if it fails or is not on the PATH."""
    try:
        ended = subprocess.run(["gh", *words], input=stdin, capture_output=True, text=True, check=False)
    except OSError:
        raise Halt("expected the program gh on the PATH, got none; install it from https://cli.github.com") from None
    if ended.returncode:
        raise Halt(
            f"`gh {' '.join(words)}` failed: {ended.stderr.strip()}\n"
            "The workflow must pass `env: GITHUB_TOKEN: ${{ github.token }}` and have the right `pull-requests: write`"
        )
    return ended.stdout


def _written(listing: str, marked: str) -> dict[str, Any] | None:
    """Return the first comment with the mark that a workflow wrote. A comment of a deleted account has no user."""
    for item in (item for page in json.loads(_gh("api", listing, "--paginate", "--slurp")) for item in page):
        if (item["user"] or {}).get("type") == _BOT and (item["body"] or "").startswith(marked):
            return item
    return None


def _body(marked: str, text: Path, run: Run) -> str:
    read = inert(text.read_text()) if text.exists() else ""
    content = read.removeprefix(marked).strip() or _NO_TEXT
    if len(content) > MAX_CHARACTERS:
        content = f"{content[:MAX_CHARACTERS]}\n\n(truncated; the run has the full text)"
    return f"{marked}\n{content}\n\n[run]({run.link}) of commit {run.commit[:8]}\n"


if __name__ == "__main__":
    app()

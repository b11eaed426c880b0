"""What workflows post: the comment of a stack's preview on a pull request, the issue of a stack's drift.

One comment and one issue for each stack: a hidden first line, the marker, finds the earlier one. What stands below
is the Markdown of `multislice preview` and `multislice drift`.
"""

from enum import IntEnum
from pathlib import Path

from cli.ci.github import Repository, Run
from cli.halt import Halt
from infra.review.preview import MOST_CHARACTERS, mark
from workloads.terminal import inert

LABEL = "drift"

_NOTHING_SAID = "The command ended before it could say anything; the run has its messages."


class Drift(IntEnum):
    """Exit status of `multislice drift`."""

    NONE = 0
    FOUND = 2


def comment(stack: str, text: Path, pull_request: int, run: Run) -> str:
    """Post or update the preview's comment; its address."""
    marked = mark("preview", stack)
    return Repository(run.access).put_comment(pull_request, marked, _body(marked, text, run))


def drift_issue(stack: str, text: Path, status: int, run: Run) -> str:
    """Open or update the stack's issue when there is drift, close it when there is none any more; what was done.

    Raises:
        Halt: the look at the stack failed, so that nobody knows.
    """
    marked = mark("drift", stack)
    if status == Drift.FOUND:
        title = f"{stack}: what is there differs from what was declared"
        return f"drift: {Repository(run.access).put_issue(marked, title, _body(marked, text, run), LABEL)}"
    if status == Drift.NONE:
        closed = Repository(run.access).close_issue(marked, LABEL, f"No drift any more, says [this run]({run.link}).")
        return f"no drift; closed {closed}" if closed else "no drift"
    raise Halt(
        f"`multislice drift -s {stack}` ended with status {status}, so nobody knows whether there is drift; its"
        " messages stand in the step before",
        status,
    )


def require_newest(branch: str, run: Run) -> None:
    """Carry out a plan of the branch's newest commit alone: an older one would take newer changes back.

    Raises:
        Halt: the branch has gone on.
    """
    newest = Repository(run.access).head(branch)
    if newest != run.commit:
        raise Halt(
            f"expected the newest commit of {branch}, got {run.commit}; the newest is {newest}.\n"
            "Approve that one's run: it has a plan of its own, and this one would take its changes back"
        )


def _body(marked: str, text: Path, run: Run) -> str:
    said = inert(text.read_text()) if text.exists() else ""
    content = said.removeprefix(marked).strip() or _NOTHING_SAID
    if len(content) > MOST_CHARACTERS:
        content = f"{content[:MOST_CHARACTERS]}\n\n(cut here; the run has all of it)"
    return f"{marked}\n{content}\n\n[run]({run.link}) of commit {run.commit[:8]}\n"

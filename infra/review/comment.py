"""A preview as a comment on a pull request.

Owns the mark by which the comment is found again, and its length.
"""

from infra.review.preview_tables import preview_tables
from infra.review.previewed import Previewed
from infra.review.table import as_markdown

MOST_CHARACTERS = 65_000
"""GitHub takes a body of 65,536: https://github.com/dead-claudia/github-limits#issues-and-pull-requests. The rest is
room for what is posted around it."""

_OPENED, _CLOSED = "<details>", "</details>"


def mark(kind: str, stack: str) -> str:
    """Hidden first line of what is posted about that stack."""
    return f"<!-- tpu-multislice {kind} {stack} -->"


def comment(previewed: Previewed) -> str:
    """The tables with that mark; of more than GitHub takes the end is cut, aloud."""
    whole = f"{mark('preview', previewed.stack)}\n{as_markdown(preview_tables(previewed))}"
    return whole if len(whole) <= MOST_CHARACTERS else _cut(whole, previewed.stack)


def _cut(whole: str, stack: str) -> str:
    told = (
        f"\n\n**CUT HERE: this comment would have {len(whole):,} characters, of which {MOST_CHARACTERS:,} are posted."
        f" All of it: `bin/multislice preview -s {stack}`**"
    )
    room = MOST_CHARACTERS - len(told) - len(f"\n\n{_CLOSED}")
    # Not within a line: half a row is no table.
    end = whole.rfind("\n", 0, room)
    kept = whole[:end]
    closing = f"\n\n{_CLOSED}" if kept.count(_OPENED) > kept.count(_CLOSED) else ""
    return f"{kept}{closing}{told}"

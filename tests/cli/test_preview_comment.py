import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.answer import Halt
from cli.preview_comment import Run, app, comment, current_run
from infra.review.preview import MAX_CHARACTERS, mark
from tests.ci.conftest import StandIn

GOLDEN = Path(__file__).parent / "comment.md"
MARK = mark("dev")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
RUN = Run("owner/name", "https://github.example", "7", COMMIT)
BOT, PERSON = {"type": "Bot"}, {"type": "User"}
POSTED = {"html_url": "https://github.example/c/1"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "preview.md"
    path.write_text(f"{MARK}\n### dev: 2 to create\n\n| rule | says |\n|---|---|\n")
    return path


def written(stand_in: StandIn) -> tuple[str, Any]:
    """The last command line and what it sent."""
    *_, line, content = stand_in.asked
    return line, json.loads(content)


def has(stand_in: StandIn, *earlier: object) -> None:
    """The listing has these comments, on two pages."""
    stand_in.answers(**{"--slurp": [earlier[:1], earlier[1:]], "api": POSTED})


def test_the_comment_is_the_previews_text_with_a_link_to_its_run(stand_in: StandIn, text: Path) -> None:
    has(stand_in)
    assert comment("dev", text, 5, RUN) == POSTED["html_url"]
    line, content = written(stand_in)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(content["body"])
    assert line == "gh api repos/owner/name/issues/5/comments --method POST --input -"
    assert content["body"] == GOLDEN.read_text()


def test_a_second_preview_is_written_over_the_first_on_whatever_page_it_is(stand_in: StandIn, text: Path) -> None:
    other = {"id": 1, "user": BOT, "body": f"{mark('prod')}\nearlier"}
    has(stand_in, other, {"id": 2, "user": BOT, "body": f"{MARK}\nearlier"})
    comment("dev", text, 5, RUN)
    assert "--paginate" in stand_in.asked[0]
    assert written(stand_in)[0] == "gh api repos/owner/name/issues/comments/2 --method PATCH --input -"


@pytest.mark.parametrize("user", [PERSON, None], ids=["a person", "a deleted account"])
def test_what_no_workflow_wrote_is_not_overwritten_whatever_it_begins_with(
    stand_in: StandIn, text: Path, user: object
) -> None:
    has(stand_in, {"id": 1, "user": user, "body": f"{MARK}\nmine"})
    comment("dev", text, 5, RUN)
    assert "POST" in written(stand_in)[0]


def test_a_preview_that_printed_nothing_still_links_to_its_run(stand_in: StandIn, tmp_path: Path) -> None:
    has(stand_in)
    comment("dev", tmp_path / "missing.md", 5, RUN)
    body = written(stand_in)[1]["body"]
    assert body.startswith(f"{MARK}\nThe command ended before")
    assert "https://github.example/owner/name/actions/runs/7" in body


def test_a_text_longer_than_github_takes_is_cut_and_says_so(stand_in: StandIn, text: Path) -> None:
    has(stand_in)
    text.write_text(MARK + "\n" + "x" * 70_000)
    comment("dev", text, 5, RUN)
    body = written(stand_in)[1]["body"]
    assert len(body) < 65_536
    assert "(truncated; " in body


def test_a_preview_that_was_cut_for_github_is_posted_as_it_is(stand_in: StandIn, text: Path) -> None:
    has(stand_in)
    text.write_text(f"{MARK}\n".ljust(MAX_CHARACTERS - 1, "x") + "!")
    comment("dev", text, 5, RUN)
    body = written(stand_in)[1]["body"]
    assert text.read_text() in body
    assert len(body) < 65_536


def test_a_missing_right_is_reported_with_the_line_that_gives_it(stand_in: StandIn, text: Path) -> None:
    stand_in.write('echo "gh: Resource not accessible by integration (HTTP 403)" >&2; exit 1')
    with pytest.raises(Halt, match=r"not accessible by integration(.|\n)*`pull-requests: write`"):
        comment("dev", text, 5, RUN)


def test_without_gh_the_message_says_where_it_comes_from(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Halt, match=r"https://cli\.github\.com"):
        comment("dev", text, 5, RUN)


def test_a_process_that_is_not_in_a_workflow_is_told_which_variables_are_missing() -> None:
    with pytest.raises(Halt, match="these are missing: GITHUB_SERVER_URL, GITHUB_SHA"):
        current_run({"GITHUB_REPOSITORY": "owner/name", "GITHUB_RUN_ID": "7"})


def test_the_command_posts_with_the_environment_of_a_runner(
    stand_in: StandIn, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(stand_in)
    described = {"REPOSITORY": "owner/name", "SERVER_URL": "https://github.example", "RUN_ID": "7", "SHA": COMMIT}
    for name, value in described.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    posted = CliRunner().invoke(app, ["--stack", "dev", "--text", str(text), "--pull-request", "5"])
    assert (posted.exit_code, posted.stdout) == (0, f"{POSTED['html_url']}\n")
    assert written(stand_in)[1]["body"] == GOLDEN.read_text()

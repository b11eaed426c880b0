import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.answer import Halt
from cli.ci.github import Run, comment, drift_issue, require_newest
from infra.review.preview import MOST_CHARACTERS, mark
from tests.cli.ci.conftest import StandIn

ROOT = Path(__file__).parent.parent.parent.parent
GOLDEN = Path(__file__).parent / "comment.md"
MARK = mark("preview", "dev")
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
    """The listing has these comments or issues, on two pages."""
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
    other = {"id": 1, "user": BOT, "body": f"{mark('preview', 'prod')}\nearlier"}
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
    text.write_text(f"{MARK}\n".ljust(MOST_CHARACTERS - 1, "x") + "!")
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


def test_drift_opens_one_issue_and_the_next_night_updates_it(stand_in: StandIn, text: Path) -> None:
    text.write_text("slices-0: 4 nodes declared, 3 there\n")
    has(stand_in)
    drift_issue("dev", text, 2, RUN)
    line, opened = written(stand_in)
    assert line == "gh api repos/owner/name/issues --method POST --input -"
    assert opened["body"].splitlines()[:2] == [mark("drift", "dev"), "slices-0: 4 nodes declared, 3 there"]
    has(stand_in, {"number": 3, "user": BOT, "body": opened["body"]})
    drift_issue("dev", text, 2, RUN)
    assert written(stand_in)[0] == "gh api repos/owner/name/issues/3 --method PATCH --input -"


def test_a_night_without_drift_closes_the_issue_and_says_why(stand_in: StandIn, text: Path) -> None:
    has(stand_in)
    assert drift_issue("dev", text, 0, RUN) == "no drift"
    has(stand_in, {"number": 3, "user": BOT, "body": f"{mark('drift', 'dev')}\n"})
    assert drift_issue("dev", text, 0, RUN) == f"no drift; closed {POSTED['html_url']}"
    assert written(stand_in) == ("gh api repos/owner/name/issues/3 --method PATCH --input -", {"state": "closed"})
    assert "found no drift" in json.loads(stand_in.asked[-3])["body"]


def test_a_look_that_failed_neither_opens_nor_closes_an_issue(stand_in: StandIn, text: Path) -> None:
    with pytest.raises(Halt, match="status 1, so it is unknown"):
        drift_issue("dev", text, 1, RUN)
    assert stand_in.asked == []


def test_a_plan_of_an_older_commit_is_refused(stand_in: StandIn) -> None:
    stand_in.answers(commits={"sha": COMMIT})
    require_newest("main", RUN)
    newest = "f" * 40
    stand_in.answers(commits={"sha": newest})
    with pytest.raises(Halt, match=f"expected the newest commit of main, {newest}, got {COMMIT}"):
        require_newest("main", RUN)


def test_the_command_posts_with_the_environment_of_a_runner(stand_in: StandIn, text: Path) -> None:
    has(stand_in)
    environment = {name: os.environ[name] for name in ("PATH", "STAND_IN")} | {
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_RUN_ID": "7",
    }
    without = _run_comment(text, environment)
    assert without.returncode == 1
    assert "these are missing: GITHUB_SHA" in without.stderr
    posted = _run_comment(text, environment | {"GITHUB_SHA": COMMIT})
    assert (posted.returncode, posted.stdout) == (0, f"{POSTED['html_url']}\n")


def _run_comment(text: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.ci", "comment", "--stack", "dev", "--text", str(text), "--pull-request", "5"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

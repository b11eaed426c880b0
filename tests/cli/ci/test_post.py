import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.ci.post import comment, drift_issue, require_newest
from cli.halt import Halt
from infra.review.preview import MOST_CHARACTERS, mark
from tests.cli.ci.github_server import BOT, COMMIT, PERSON, TOKEN, GitHub, github

ROOT = Path(__file__).parent.parent.parent.parent
GOLDEN = Path(__file__).parent / "comment.md"
MARK = mark("preview", "dev")


@pytest.fixture
def hub() -> Iterator[GitHub]:
    with github() as served:
        yield served


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "preview.md"
    path.write_text(f"{MARK}\n### dev: 2 to create\n\n| rule | says |\n|---|---|\n")
    return path


def test_the_comment_is_the_previews_text_with_a_link_to_its_run(hub: GitHub, text: Path) -> None:
    comment("dev", text, 5, hub.run())
    posted = hub.comments[0]["body"]
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(posted)
    assert posted == GOLDEN.read_text()


def test_a_second_preview_is_written_over_the_first(hub: GitHub, text: Path) -> None:
    first = comment("dev", text, 5, hub.run())
    text.write_text(f"{MARK}\nnothing to do\n")
    assert comment("dev", text, 5, hub.run()) == first
    assert [("nothing to do" in item["body"], "to create" in item["body"]) for item in hub.comments] == [(True, False)]


def test_each_stack_and_each_pull_request_has_a_comment_of_its_own(hub: GitHub, text: Path) -> None:
    posted = {
        comment("dev", text, 5, hub.run()),
        comment("prod", text, 5, hub.run()),
        comment("dev", text, 6, hub.run()),
    }
    assert len(posted) == 3


def test_the_earlier_comment_is_found_behind_a_hundred_others(hub: GitHub, text: Path) -> None:
    for number in range(100):
        hub.add_comment(5, f"comment {number}", PERSON)
    hub.add_comment(5, f"{MARK}\nearlier", BOT)
    comment("dev", text, 5, hub.run())
    assert len(hub.comments) == 101
    assert "to create" in hub.comments[-1]["body"]
    assert hub.listings == 2


def test_what_a_person_wrote_is_not_overwritten_whatever_it_begins_with(hub: GitHub, text: Path) -> None:
    hub.add_comment(5, f"{MARK}\nmine", PERSON)
    comment("dev", text, 5, hub.run())
    assert hub.comments[0]["body"] == f"{MARK}\nmine"
    assert len(hub.comments) == 2


def test_a_preview_that_said_nothing_still_leads_to_its_run(hub: GitHub, tmp_path: Path) -> None:
    comment("dev", tmp_path / "missing.md", 5, hub.run())
    assert hub.comments[0]["body"].startswith(f"{MARK}\nThe command ended before it could say anything")
    assert "https://github.example/owner/name/actions/runs/7" in hub.comments[0]["body"]


def test_a_text_longer_than_github_takes_is_cut_and_says_so(hub: GitHub, text: Path) -> None:
    text.write_text(MARK + "\n" + "x" * 70_000)
    comment("dev", text, 5, hub.run())
    assert len(hub.comments[0]["body"]) < 65_536
    assert "cut here" in hub.comments[0]["body"]


def test_a_preview_that_was_cut_for_github_is_posted_as_it_is(hub: GitHub, text: Path) -> None:
    text.write_text(f"{MARK}\n".ljust(MOST_CHARACTERS - 1, "x") + "!")
    comment("dev", text, 5, hub.run())
    assert text.read_text() in hub.comments[0]["body"]
    assert len(hub.comments[0]["body"]) < 65_536


def test_what_a_deleted_account_has_written_is_passed_over(hub: GitHub, text: Path) -> None:
    hub.add_comment(5, f"{MARK}\nearlier", None)
    comment("dev", text, 5, hub.run())
    assert len(hub.comments) == 2


def test_a_missing_right_is_told_with_the_line_that_gives_it(hub: GitHub, text: Path) -> None:
    hub.lacking_right = True
    with pytest.raises(Halt, match=r"403 .*not accessible by integration.*\n.*`pull-requests: write` for comments"):
        comment("dev", text, 5, hub.run())


def test_a_wrong_token_is_told_with_how_to_pass_it(hub: GitHub, text: Path) -> None:
    with pytest.raises(Halt, match=r"401 .*Bad credentials.*\n.*GITHUB_TOKEN: \$\{\{ github\.token \}\}"):
        comment("dev", text, 5, hub.run("stale"))


def test_no_answer_at_all_is_told_without_a_traceback(hub: GitHub, text: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        unheard = replace(hub.access(), api_url=f"http://127.0.0.1:{unused.getsockname()[1]}")
        nowhere = replace(hub.run(), access=unheard)
        with pytest.raises(Halt, match=r"no answer from http://127.*\ntry again"):
            comment("dev", text, 5, nowhere)


def test_drift_opens_one_issue_and_the_next_night_updates_it(hub: GitHub, text: Path) -> None:
    text.write_text("slices-0: 4 nodes declared, 3 there\n")
    drift_issue("dev", text, 2, hub.run())
    text.write_text("slices-0: 4 nodes declared, 2 there\n")
    drift_issue("dev", text, 2, hub.run())
    drift_issue("prod", text, 2, hub.run())
    assert [issue["body"].splitlines()[:2] for issue in hub.issues] == [
        [mark("drift", "dev"), "slices-0: 4 nodes declared, 2 there"],
        [mark("drift", "prod"), "slices-0: 4 nodes declared, 2 there"],
    ]


def test_a_night_without_drift_closes_the_issue_and_says_why(hub: GitHub, text: Path) -> None:
    drift_issue("dev", text, 2, hub.run())
    assert drift_issue("dev", text, 0, hub.run()) == "no drift; closed https://github.example/i/1"
    assert hub.issues[0]["state"] == "closed"
    assert "No drift any more" in hub.comments[0]["body"]
    assert drift_issue("dev", text, 0, hub.run()) == "no drift"


def test_a_look_that_failed_neither_opens_nor_closes_an_issue(hub: GitHub, text: Path) -> None:
    drift_issue("dev", text, 2, hub.run())
    with pytest.raises(Halt, match="status 1, so nobody knows"):
        drift_issue("dev", text, 1, hub.run())
    assert [issue["state"] for issue in hub.issues] == ["open"]


def test_a_plan_of_an_older_commit_is_refused(hub: GitHub) -> None:
    require_newest("main", hub.run())
    hub.commit = "f" * 40
    with pytest.raises(Halt, match=f"expected the newest commit of main, got {COMMIT}; the newest is {hub.commit}"):
        require_newest("main", hub.run())


def test_the_command_posts_with_the_environment_of_a_runner(hub: GitHub, text: Path) -> None:
    environment = {
        "GITHUB_API_URL": hub.url,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_RUN_ID": "7",
        "GITHUB_SHA": COMMIT,
    }
    without = _run_comment(text, environment)
    assert without.returncode == 1
    assert "these are missing: GITHUB_TOKEN." in without.stderr
    posted = _run_comment(text, environment | {"GITHUB_TOKEN": TOKEN})
    assert (posted.returncode, posted.stdout) == (0, "https://github.example/c/1\n")


def _run_comment(text: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.ci", "comment", "--stack", "dev", "--text", str(text), "--pull-request", "5"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

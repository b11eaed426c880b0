"""Commands as people type them: each option reaches what it is for, whatever the order in which they are handed on."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.deployed import Deployed
from cli.main import app
from cli.sandbox_folder import DEFAULT
from sandbox.site import create
from tests.cli import api_objects
from tests.cli.api_objects import JOBSETS, PODS, WORKLOADS, stamped
from tests.cli.api_server import Played
from tests.cli.standing import finish, stack, trained, waiting

LEADER, OTHER = "tiny-slice-0-0", "tiny-slice-1-0"

pytestmark = pytest.mark.usefixtures("asked")


@pytest.fixture
def ended(server: Played) -> Played:
    """The job has ended, so that a command which follows it by mistake ends as well."""
    finish(server)
    return server


@pytest.fixture
def asked(server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path | None]]:
    """Return the requested stacks with their sandboxes. Every name gives the same stack on the played API server."""
    trained(tmp_path)
    found: list[tuple[str, Path | None]] = []

    def deployed(name: str, sandbox: Path | None) -> Deployed:
        found.append((name, sandbox))
        return stack(server, tmp_path)

    monkeypatch.setattr("cli.deployed.deployed", deployed)
    return found


def run(*words: str, exit_status: int = 0) -> Result:
    """The command line on the stack `dev`."""
    found = CliRunner().invoke(app, [words[0], "-s", "dev", *words[1:]], env={"COLUMNS": "160"})
    assert found.exit_code == exit_status, found.output
    return found


def lines(*words: str) -> list[str]:
    return run("logs", *words).stdout.splitlines()


def answer(*words: str) -> dict[str, Any]:
    return json.loads(run(*words).stdout)


@pytest.mark.parametrize(
    ("words", "sandbox"),
    [
        (["status"], None),
        (["list", "--engine", "pulumi"], None),
        (["logs", "--sandbox", "here"], Path("here")),
        (["explain", "--engine", "sandbox"], DEFAULT),
        (["status", "--sandbox"], DEFAULT),
        (["list", "--engine", "sandbox", "--sandbox", "here"], Path("here")),
    ],
)
def test_a_stack_is_looked_for_where_the_command_line_says(
    words: list[str],
    sandbox: Path | None,
    asked: list[tuple[str, Path | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(tmp_path)
    create(sandbox or DEFAULT)
    run(*words)
    assert asked == [("dev", tmp_path / DEFAULT if sandbox == DEFAULT else sandbox)]


@pytest.mark.usefixtures("ended")
def test_logs_are_the_leaders_unless_a_host_or_all_are_asked_for() -> None:
    assert lines() == lines("tiny") == [f"{LEADER} one", f"{LEADER} two"]
    assert lines("tiny", "--host", "slice-1-0") == [f"{OTHER} one", f"{OTHER} two"]
    hosts = ["slice-0-0", "slice-0-1", "slice-1-0", "slice-1-1"]
    assert lines("--all") == [f"{host}  tiny-{host} {word}" for word in ("one", "two") for host in hosts]
    assert "stack dev (tiny), got 'slice-1-0'" in run("logs", "slice-1-0", exit_status=1).stderr


def test_logs_of_the_start_before_are_asked_for(ended: Played) -> None:
    ended.change(PODS, api_objects.pod(0, 0, "Succeeded", attempt=1, exit_code=0, created=72))
    ended.write(f"{LEADER}-1abcd", *stamped(["again"], at=90))
    assert lines() == ["again"]
    for option in ("--previous", "-p"):
        assert lines(option) == [f"{LEADER} one", f"{LEADER} two"]


def test_a_tail_is_so_many_lines_of_a_host(ended: Played) -> None:
    ended.write(f"{LEADER}-0abcd", *stamped(["three", "four", "five", "six"], at=70))
    assert lines("--tail", "5") == [f"{LEADER} two", "three", "four", "five", "six"]
    assert lines("--tail", "0") == []


def test_since_a_time_ago_leaves_out_what_is_older(ended: Played) -> None:
    seconds_ago = time.time() - api_objects.START
    ended.write(f"{LEADER}-0abcd", *stamped(["older"], at=seconds_ago - 700), *stamped(["newer"], at=seconds_ago - 500))
    assert lines("--since", "10m") == ["newer"]
    assert lines("--since", "10m", "--tail", "1") == ["newer"]
    assert "--since must be a whole number of seconds" in run("logs", "--since", "10", exit_status=1).stderr


@pytest.mark.usefixtures("ended")
def test_logs_as_json_are_an_object_for_each_line() -> None:
    reported = [json.loads(line) for line in lines("-o", "json")]
    assert [(line["host"], line["attempt"], line["text"]) for line in reported] == [
        ("slice-0-0", 0, f"{LEADER} one"),
        ("slice-0-0", 0, f"{LEADER} two"),
    ]


@pytest.mark.parametrize(("option", "terminal", "status"), [("--follow", "Failed", 2), ("-f", "Completed", 0)])
def test_logs_are_followed_to_what_is_printed_later_and_to_the_end_of_the_job(
    server: Played, option: str, terminal: str, status: int
) -> None:
    thread = threading.Thread(target=print_and_end_once_followed, args=(server, terminal))
    thread.start()
    found = run("logs", option, exit_status=status)
    thread.join()
    assert found.stdout.splitlines() == [f"{LEADER} one", f"{LEADER} two", "three"]
    assert ("multislice explain tiny" in found.stderr) == (status == 2)


def print_and_end_once_followed(server: Played, terminal: str) -> None:
    deadline = time.monotonic() + 30
    while not any(query.get("follow") == "true" for _, query in [*server.asked]) and time.monotonic() < deadline:
        time.sleep(0.02)
    server.write(f"{LEADER}-0abcd", *stamped(["three"], at=70))
    finish(server, terminal)


def test_the_status_of_a_stack_is_for_people_unless_json_is_asked_for() -> None:
    for words in ([], ["tiny"]):
        assert "dev · cluster dev · $21.60 an hour" in run("status", *words).stdout
        reported = answer("status", *words, "-o", "json")
        assert [(job["name"], job["state"], job["usd"]) for job in reported["jobs"]] == [("tiny", "running", 54.0)]
    assert "got 'other'" in run("status", "other", exit_status=1).stderr


@pytest.mark.parametrize(("option", "terminal", "exit_status"), [("--watch", "Completed", 0), ("-w", "Failed", 2)])
def test_a_watch_is_a_line_for_each_change_and_ends_with_the_job(
    server: Played, option: str, terminal: str, exit_status: int
) -> None:
    finish(server, terminal)
    (line,) = run("status", option, "tiny", exit_status=exit_status).stdout.splitlines()
    assert f"tiny {terminal.lower()}, step 5 of 5" in line


def test_a_watch_as_json_is_an_object_for_each_change(ended: Played) -> None:
    (line,) = run("status", "--watch", "-o", "json").stdout.splitlines()
    assert [job["state"] for job in json.loads(line)["jobs"]] == ["completed"]
    assert "got 'other'" in run("status", "other", "--watch", exit_status=1).stderr


def test_the_list_of_jobs_is_for_people_unless_json_is_asked_for(server: Played) -> None:
    server.change(JOBSETS, api_objects.jobset(name="by-hand"))
    assert [line.split()[0] for line in run("list").stdout.splitlines()[1:3]] == ["tiny", "by-hand"]
    assert [job["name"] for job in answer("list", "-o", "json")["jobs"]] == ["tiny", "by-hand"]


def test_an_explanation_is_for_people_unless_json_is_asked_for(server: Played) -> None:
    server.collections[WORKLOADS] = [waiting("tiny")]
    for words in ([], ["tiny"]):
        assert "-> to run it earlier, raise its `priority` in the stack file" in run("explain", *words).stdout
        reported = answer("explain", *words, "-o", "json")
        assert (reported["job"], [finding["cause"] for finding in reported["findings"]]) == ("tiny", ["quota taken"])
    assert "got 'other'" in run("explain", "other", exit_status=1).stderr


def test_a_report_is_of_the_job_and_written_where_it_is_asked_for(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    job = str(tmp_path / "tiny")
    found = CliRunner().invoke(app, ["report", job, "--page", str(page), "-o", "json"])
    assert (found.exit_code, json.loads(found.stdout)["goodput"]["usd"]) == (0, 54.0)
    assert page.read_text().startswith("<!doctype html>")
    assert "goodput" in CliRunner().invoke(app, ["report", job]).stdout

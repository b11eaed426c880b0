import io
import json
import threading
import time
from pathlib import Path

import pytest
from etils import epath
from rich.console import Console

from cli.answer import Halt
from cli.profile import captures, profile
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, JOBSETS
from tests.cli.api_server import Played
from tests.cli.standing import finish, stack
from tests.workloads.report.runs import crashed_and_resumed
from workloads.spec import PROFILE_REQUEST


def recorded(server: Played, storage: Path, wait_seconds: float = 60) -> dict[str, object]:
    written = io.StringIO()
    console = Console(file=written, width=200)
    assert profile(stack(server, storage), None, storage / "here", wait_seconds, console, as_json=True) == 0
    return json.loads(written.getvalue())


def test_a_request_is_left_in_the_runs_folder_and_what_all_hosts_record_is_downloaded(
    server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.profile._POLL_SECONDS", 0.05)
    run = crashed_and_resumed(tmp_path / "tiny")
    left(run, "0-1-5", "00000-a.xplane.pb")

    def train() -> None:
        while not (run / PROFILE_REQUEST).exists():
            time.sleep(0.02)
        (run / PROFILE_REQUEST).unlink()
        left(run, "1-12-16", *(f"{index:05}-a.xplane.pb" for index in range(len(HOSTS))))

    trainer = threading.Thread(target=train)
    trainer.start()
    answer = recorded(server, tmp_path)
    trainer.join()
    assert (answer["steps"], answer["hosts"]) == ([12, 16], 4)
    copies = (tmp_path / "here").glob("plugins/profile/1-12-16/*.xplane.pb")
    assert sorted(copy.read_text() for copy in copies) == [f"{index:05}-a.xplane.pb" for index in range(len(HOSTS))]


def test_a_request_that_no_host_answers_is_taken_back(server: Played, tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path / "tiny")
    with pytest.raises(Halt, match=r"profiles of 4 hosts within 0 s, got 0"):
        recorded(server, tmp_path, 0.1)
    assert not (run / PROFILE_REQUEST).exists()


def test_a_job_that_begins_a_new_run_is_not_asked_through_the_old_one(server: Played, tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path / "tiny")
    server.change(JOBSETS, api_objects.specified("new", steps=7))
    with pytest.raises(Halt, match="the run uid-tiny, which has not begun; only a job that is training can be"):
        recorded(server, tmp_path, 0.1)
    assert not (run / PROFILE_REQUEST).exists()


def test_a_job_that_has_ended_is_not_asked(server: Played, tmp_path: Path) -> None:
    crashed_and_resumed(tmp_path / "tiny")
    finish(server)
    with pytest.raises(Halt, match="but tiny is completed; nothing was profiled") as halted:
        recorded(server, tmp_path)
    assert halted.value.exit_status == 2


def test_a_job_of_another_program_is_not_asked(server: Played, tmp_path: Path) -> None:
    (job,) = server.collections[JOBSETS][0]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"] = [{"name": "program"}]
    with pytest.raises(Halt, match="but tiny runs another program"):
        recorded(server, tmp_path)


def test_a_job_without_a_run_is_not_asked(server: Played, tmp_path: Path) -> None:
    with pytest.raises(Halt, match="only a job that is training can be profiled"):
        recorded(server, tmp_path)


def left(run: Path, name: str, *files: str) -> None:
    folder = run / "profiles" / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_text(file)


def test_a_capture_says_its_steps_and_whose_traces_are_there(tmp_path: Path) -> None:
    left(tmp_path, "0-12-16", "00000-a.xplane.pb", "00001-b.xplane.pb", "00000-a.trace.json.gz")
    left(tmp_path, "1-40-44")
    left(tmp_path, "2026_01_05_12_00_00", "host.xplane.pb")  # Of another tool.
    found = captures(epath.Path(tmp_path))
    assert (found["0-12-16"].steps, found["0-12-16"].hosts) == ((12, 16), 2)
    assert (found["1-40-44"].steps, found["1-40-44"].hosts) == ((40, 44), 0)
    assert len(found) == 2

import json
import subprocess
import sys
from html.parser import HTMLParser
from math import nan
from pathlib import Path

import pytest
from etils import epath

from tests.workloads.jobs import small_job
from tests.workloads.report.runs import began, crashed_and_resumed, event, failure, step, write_run
from workloads.report.command import NoReport, Report, find_run, main
from workloads.report.goodput import Cause
from workloads.report.history import read_history
from workloads.report.mesh_text import Placement, hosts_in_order
from workloads.report.page import STYLES
from workloads.report.tables import WIDTH


class Reader(HTMLParser):
    """Reads the words of a page, its sections, and what it would load."""

    def __init__(self, page: str):
        super().__init__()
        self.words: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def report(storage: Path) -> Reader:
    assert main([str(storage), "--output", str(storage / "report.html")]) == 0
    page = Reader((storage / "report.html").read_text())
    assert page.open == []
    assert page.loaded == []
    return page


def test_a_crashed_and_resumed_run_is_on_one_page(tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path)
    job = small_job(tmp_path, replica=2, fsdp=4)
    (run / "manifest.json").write_text(json.dumps({"spec": job.model_dump(), "versions": {"jax": "1.2.3"}}))
    (run / "placement").mkdir()
    placed = Placement(mesh=job.mesh, slices=job.slices, hosts=hosts_in_order(job.slices), arrays=())
    (run / "placement" / "0.json").write_text(placed.model_dump_json())
    words = report(tmp_path).words
    folded = (tmp_path / "report.html").read_text().partition("<details>")[2]
    assert folded.startswith("<summary>Events</summary>")
    assert "<td>start</td>" in folded
    assert "test: run one" in words
    for expected in (
        "down after CRASH",
        "fused",
        "bfloat16",
        "host-1: ValueError: no such row",
        "attempt 2 at step 2, after CRASH host-1: ValueError: no such row",
        "step 4 skipped: its loss or gradient is not finite or too large",
        "slice 1, host 0, device 3: replica 1, stage 0, fsdp 3, tensor 0",
        "1.2.3",
    ):
        assert expected in words


def test_the_page_begins_with_what_a_job_has_reached_and_what_it_cost(tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path)
    (run / "manifest.json").write_text(json.dumps({"spec": {"name": "test", "training": {"steps": 100}}}))
    words = report(tmp_path).words
    tiles = words[words.index("step") :]
    assert [tiles[place] for place in range(0, 12, 2)] == ["step", "loss", "cost", "goodput", "restarts", "last save"]
    assert (tiles[1], tiles[9], tiles[11]) == ("5 of 5 in attempt 2", "1", "step 2, 1970-01-01 00:00:35 UTC")


def test_while_an_attempt_restores_the_page_has_no_figure_of_the_one_before(tmp_path: Path) -> None:
    run = crashed_and_resumed(tmp_path)
    (run / "steps" / "1-0.jsonl").unlink()
    with (run / "ledger" / "0-0.jsonl").open("a") as ledger:
        ledger.write(json.dumps(event(12, "checkpoint_saved", step=2)) + "\n")
    begin = (run / "ledger" / "1-0.jsonl").read_text().splitlines()[0]
    (run / "ledger" / "1-0.jsonl").write_text(begin + "\n")
    words = report(tmp_path).words
    assert "no end recorded: restoring, last save at step 2, 1970-01-01 00:00:33 UTC. " in words
    tiles = words[words.index("step") :]
    assert (tiles[1], tiles[3]) == ("restoring, last save at step 2", "none")


def test_a_watched_page_follows_the_run_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, page = write_run(tmp_path, {"0-0": [began(1)]}, {"0-0": [step(1, 2)]}), tmp_path / "report.html"
    pauses: list[float] = []

    def train(seconds: float) -> None:
        """Take a step during each pause, and end after the second."""
        pauses.append(seconds)
        assert 'http-equiv="refresh"' in page.read_text()
        assert f"<dt>step</dt><dd>{len(pauses)}</dd>" in page.read_text()
        add(run / "steps", step(len(pauses) + 1, len(pauses) + 2))
        if len(pauses) == 2:
            add(run / "ledger", event(9, "stop", cause="done", message="", code="DONE"))

    monkeypatch.setattr("workloads.report.command.time.sleep", train)
    assert main([str(tmp_path), "--output", str(page), "--watch"]) == 0
    assert len(pauses) == 2
    assert min(pauses) >= 5
    assert 'http-equiv="refresh"' not in page.read_text()
    assert "<dt>step</dt><dd>3</dd>" in page.read_text()


def add(folder: Path, line: dict[str, object]) -> None:
    with (folder / "0-0.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize(("code", "over"), [("DONE", True), ("DIVERGED", True), ("CRASH", False), ("PREEMPTED", False)])
def test_a_job_is_watched_until_no_restart_can_follow(code: str, over: bool, tmp_path: Path) -> None:
    run = write_run(
        tmp_path, {"0-0": [began(1), event(3, "stop", cause="x", message="", code=code)]}, {"0-0": [step(1, 2)]}
    )
    assert read_history(epath.Path(run)).over is over


def test_the_host_that_keeps_the_others_waiting_is_named(tmp_path: Path) -> None:
    own = {"0-0": 0.01, "0-1": 0.3, "0-2": 0.02}
    ledgers = {
        name: [began(1), event(9, "pace", host=f"host-{name}", step=5, step_seconds=1.0, host_seconds=seconds)]
        for name, seconds in own.items()
    }
    write_run(tmp_path, ledgers, {})
    assert any("host-0-1 keeps the others waiting, 300.0 ms a step" in words for words in report(tmp_path).words)


def test_words_from_a_run_are_not_markup(tmp_path: Path) -> None:
    crash = failure("h", "<script>alert(1)</script>", 1, began=0, time=2.0)
    write_run(tmp_path, {"0-0": [began(1)]}, {"0-0": [step(1, 1)]}, crash)
    assert "h: <script>alert(1)</script>" in report(tmp_path).words


@pytest.mark.parametrize(
    ("ledgers", "steps"),
    [
        ({"0-0": []}, {}),
        ({"0-0": [began(1)]}, {"0-0": [step(1, 2)]}),
        ({"0-0": [began(1)]}, {"0-0": [step(1, 2, loss=None)]}),
        ({}, {"0-0": [step(7, 2), step(8, 2)]}),
        ({"0-0": [began(1), event(2, "evaluation", step=3, loss=2.0)]}, {}),
        ({"0-0": [began(1), event(2, "evaluation", step=3, loss=nan)]}, {}),
        ({"0-0": [began(1), event(2, "pace", host="h", step=1, step_seconds=0.0, host_seconds=0.0)]}, {}),
    ],
)
def test_a_run_that_hardly_began_has_a_report_too(
    tmp_path: Path, ledgers: dict[str, list[dict[str, object]]], steps: dict[str, list[dict[str, object]]]
) -> None:
    write_run(tmp_path, ledgers, steps)
    assert "The manifest is missing." in report(tmp_path).words


def test_the_current_run_of_several_is_taken_and_an_empty_one_has_a_report(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    with pytest.raises(NoReport, match="got runs one, two and no current one; name one of them"):
        find_run(epath.Path(tmp_path))
    (tmp_path / "current.json").write_text('{"run": "two"}')
    assert find_run(epath.Path(tmp_path)).name == "two"
    assert "No attempt has left a ledger." in report(tmp_path).words


def test_where_no_run_is_the_last_failure_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "failures" / "job").mkdir(parents=True)
    for host, time in (("host-1", 9.0), ("host-0", 11.0)):
        record = failure(host, f"{host} lacks chips", 23, began=1, time=time)
        (tmp_path / "failures" / "job" / f"{host}-0-1.json").write_text(json.dumps(record))
    assert main([str(tmp_path)]) == 1
    assert "found no run; its last failure: host-0 lacks chips" in capsys.readouterr().err


def test_a_start_that_opened_no_run_is_reported_before_the_one_that_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = failure("host-0", "wrong products", 23, began=10, time=70.0)
    write_run(tmp_path, {"0-0": [began(101, 1, 100, 3600.0)]}, {}, bad)
    words = report(tmp_path).words
    assert {"before 1", "BAD_HOST", "host-0: wrong products", "down after BAD_HOST"} <= {*words}
    assert "Before attempt 1: 90.0 s, $90.00, then BAD_HOST" in words
    screen = capsys.readouterr().out
    assert "Before attempt 1: BAD_HOST" in screen
    assert "in 2 attempts" in screen


def test_every_cause_has_a_colour() -> None:
    assert STYLES.keys() == {*Cause}


def test_object_page_and_screen_have_time_and_dollars_by_cause_fault_and_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = crashed_and_resumed(tmp_path, 3600.0, 7200.0)
    assert main([str(tmp_path), "--json"]) == 0
    found = Report.model_validate_json(capsys.readouterr().out)
    assert (found.run, found.page) == (str(run), str(run / "report.html"))
    assert (found.goodput.seconds, found.goodput.usd) == (42.0, 54.0)
    assert [start.usd for start in found.goodput.starts] == [30.0, 24.0]
    assert found.goodput.losses[0].after == "CRASH"
    words, screen = report(tmp_path).words, capsys.readouterr().out
    for text in ("down after CRASH", "$14.50", "What faults cost", "$54.00"):
        assert text in words
        assert text in screen
    assert max(map(len, screen.splitlines()[:-1])) <= WIDTH


def test_of_many_starts_some_are_left_out_and_an_unknown_price_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, {f"{start}-0": [began(2.0 * start + 1, 0, 2.0 * start)] for start in range(12)}, {})
    assert main([str(tmp_path)]) == 0
    screen = capsys.readouterr().out
    assert "4 attempts between the first and the last ones are left out; `--json` shows them." in screen
    assert [line for line in screen.splitlines() if line.startswith("Attempt ")] == [
        *(f"Attempt {number}: KILLED" for number in range(1, 8)),
        "Attempt 12: no end recorded",
    ]
    assert "The price of the job is unknown in attempt 1, 2, 3, 4" in screen


def test_files_that_cannot_be_read_or_written_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = crashed_and_resumed(tmp_path)
    assert main([str(tmp_path), "--output", str(tmp_path / "nowhere" / "page.html")]) == 1
    assert "page.html: expected to write the page there, got FileNotFoundError" in capsys.readouterr().err
    (run / "ledger" / "2-0.jsonl").mkdir()
    assert main([str(tmp_path)]) == 1
    assert f"{tmp_path}: expected readable files, got IsADirectoryError" in capsys.readouterr().err


def test_read_access_to_a_run_is_enough_for_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (crashed_and_resumed(tmp_path) / "report.html").mkdir()
    for asked in ([], ["--json"]):
        assert main([str(tmp_path), *asked]) == 0
        captured = capsys.readouterr()
        assert "report.html: expected to write the page there, got IsADirectoryError" in captured.err
        assert "choose --output FILE" in captured.err
        if asked:
            found = Report.model_validate_json(captured.out)
            assert (found.page, found.goodput.seconds) == (None, 42.0)
        else:
            assert captured.out.splitlines()[-1] == "goodput 8.9 % of 42.0 s in 2 attempts"


def test_the_report_is_a_command_of_the_trainer_that_needs_no_jax(tmp_path: Path) -> None:
    crashed_and_resumed(tmp_path)
    code = (
        "import runpy, sys\nsys.argv = ['workloads.training', 'report', sys.argv[1]]\n"
        "try:\n    runpy.run_module('workloads.training', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2] == "goodput 8.9 % of 42.0 s in 2 attempts"
    assert done.stdout.splitlines()[-1].startswith("page: ")
    assert (tmp_path / "runs" / "one" / "report.html").exists()


_SILENT = """
import os, socket, time
from workloads.report import command
listening = socket.create_server(("127.0.0.1", 0))
os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
command._ANSWER_SECONDS = 0.5
began = time.monotonic()
status = command.main(["gs://bucket/job"])
assert (status, time.monotonic() - began < 30) == (1, True)
"""


def test_storage_that_does_not_answer_is_reported_in_one_line() -> None:
    """The test runs in a separate process, with which the requests of gcsfs end."""
    ended = subprocess.run([sys.executable, "-c", _SILENT], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    (line,) = ended.stderr.splitlines()
    assert "gs://bucket/job" in line
    assert "no answer from Cloud Storage within" in line


def test_a_start_from_the_memory_of_the_pods_is_named_with_what_it_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restored = {"step": 3, "hosts": 4, "of_hosts": 4, "saved": 2}
    ledgers = {
        "0-0": [began(1, 0, 0), event(2, "run_started", step=0, steps=9)],
        "1-0": [began(21, 1, 20), event(22, "restored_locally", **restored), event(22, "run_started", step=3, steps=9)],
    }
    steps = {"0-0": [step(number, 2 + number) for number in (1, 2, 3, 4)], "1-0": [step(4, 24)]}
    write_run(tmp_path, ledgers, steps)
    words = report(tmp_path).words
    assert "4 to 4, from the memory of the pods" in words
    said = (
        "attempt 2 continued from the memory of the pods at step 3: 1 step repeated; the newest checkpoint was of step"
    )
    assert said in " ".join(capsys.readouterr().out.split())

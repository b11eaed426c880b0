import json
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.hosts import Host, Hosts
from cli.train import app, failure_of


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "tinny"], "'tinny' is not a preset; choose one of gemma-2-9b"),
        (["--chips", "3"], "training.global_batch must be a multiple of mesh.replica x mesh.fsdp (12), got 32"),
        (["--mesh", "fdsp=8"], "must be AXIS=SIZE,... with each axis of replica, stage, fsdp, tensor at most once"),
        (["--mesh", "fsdp=2,replica=2,fsdp=8"], "at most once, got 'fsdp=2,replica=2,fsdp=8'"),
        (["--mesh", "replica=2"], "nearest that fit: replica 2 x fsdp 8, or"),
        (["--preset", "llama-3.2-1b"], "--data must name a token folder, because the preset llama-3.2-1b has no data"),
        (["--chips", "3"], "model.embed_dim must be a multiple of mesh.fsdp (6), got 64"),
    ],
)
def test_bad_input_is_one_message_before_anything_starts(arguments: list[str], message: str, tmp_path: Path) -> None:
    ended = run(*arguments, "--storage", str(tmp_path / "storage"))
    assert ended.exit_code in (1, 2)
    assert message in re.sub(r"[\s│]+", " ", ended.stderr)
    assert not (tmp_path / "storage").exists()


@pytest.mark.costs(cpu_seconds=30)
def test_a_job_trains_from_the_command_line_and_says_where_everything_is(tmp_path: Path) -> None:
    arguments = ["--slices", "1", "--hosts", "1", "--chips", "2", "--steps", "3", "--storage", str(tmp_path)]
    ended = run(*arguments, "--mesh", "stage=2")
    assert ended.exit_code == 0
    for words in ("step 3/3 loss", "final loss", "time to first step", "/checkpoints", "next: "):
        assert words in ended.stdout
    assert list(tmp_path.glob("runs/*/checkpoints/3"))


def test_a_killed_host_is_the_cause_although_only_another_one_left_a_record(tmp_path: Path) -> None:
    hosts: list[Host] = []
    for number, ending in enumerate(("exit 134", "kill -9 $$")):
        process = subprocess.Popen(["/bin/sh", "-c", ending])
        process.wait()
        log = tmp_path / f"{number}.log"
        log.write_text(f"log of {number}")
        hosts.append(Host(f"127.1.0.{number}", log, process))
    record = {"host": "127.1.0.0", "code": 134, "cause": "another host is gone", "time": 1.0}
    (tmp_path / "0.json").write_text(json.dumps(record))
    told = failure_of(Hosts(hosts), tmp_path)
    assert told.startswith("host 127.1.0.1 ended with exit code -9")
    assert told.endswith("log of 1")


@pytest.mark.complete
def test_a_failed_host_is_shown_with_its_exit_code_and_log(tmp_path: Path) -> None:
    arguments = ["--slices", "1", "--hosts", "1", "--chips", "2", "--storage", str(tmp_path)]
    assert run(*arguments, "--steps", "1").exit_code == 0
    for path in tmp_path.glob("runs/*/manifest.json"):
        path.write_text(path.read_text().replace('"embed_dim": 64', '"embed_dim": 32'))
    ended = run(*arguments, "--steps", "2")
    assert ended.exit_code == 1
    shown = " ".join(ended.stdout.split())
    assert re.search(
        r"exit code 20 \(INVALID_SPEC\): run \S+ cannot continue .*model.embed_dim: expected 32, got 64", shown
    )
    assert "host-0.log: " in shown

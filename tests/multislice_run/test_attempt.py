import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from etils import epath

from multislice_run.attempt import Attempt, NoJobFolder
from multislice_run.exit_codes import ExitCode
from tests.workloads.hosts import wait_until
from workloads.report.command import find_run
from workloads.report.goodput import Cause, goodput
from workloads.report.history import History, read_history
from workloads.report.training import summarize_training

PROGRAM = """
import json, sys, time
from multislice_run.attempt import Attempt, Preempted
from multislice_run.records.ledger import write_whole

with Attempt(steps=int(sys.argv[1]), save_every_minutes=1) as attempt:
    saved = attempt.folder / "saved"
    step = int(saved.read_text()) if saved.exists() else 0
    attempt.resumed(step)
    while step < attempt.steps:
        time.sleep(0.02)
        step += 1
        attempt.step(step, loss=1 / step, tokens=100)
        stopping = attempt.stopping(step)
        if stopping or step % 5 == 0:
            if attempt.leads:
                write_whole(saved, str(step))
            attempt.saved(step)
        if stopping:
            raise Preempted(f"SIGTERM after step {step}")
        if step == int(sys.argv[2]):
            raise ValueError("the loss is a fish")
assert "jax" not in sys.modules and "pydantic" not in sys.modules
"""


def start(folder: Path, steps: int, fails_at: int = 0, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "JOB_FOLDER": str(folder), "RUN_ID": "first", "USD_PER_HOUR": "36", **variables}
    environment = {"JOB_RESTART_ATTEMPT": "0"} | environment
    command = [sys.executable, "-c", PROGRAM, str(steps), str(fails_at)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def history(folder: Path) -> History:
    return read_history(find_run(epath.Path(folder)))


def test_a_program_that_crashed_resumes_and_the_report_has_its_steps_and_dollars(tmp_path: Path) -> None:
    code, said = end(start(tmp_path, steps=12, fails_at=8))
    assert code == ExitCode.CRASH
    assert "stopped: ValueError: the loss is a fish" in said
    sign = tmp_path / "sign"
    assert end(start(tmp_path, steps=12, JOB_RESTART_ATTEMPT="1", JOB_HEARTBEAT_FILE=str(sign))) == (0, "")
    assert sign.exists()
    found = history(tmp_path)
    assert found.notes == ()
    assert [(each.ending, each.steps[0].step, each.steps[-1].step) for each in found.starts] == [
        ("CRASH", 1, 8),
        ("DONE", 6, 12),
    ]
    seen = summarize_training(found)
    assert (seen.step, seen.steps, seen.submission, seen.attempt, seen.ended) == (12, 12, "first", 2, True)
    assert (seen.loss, seen.checkpoint_step) == (1 / 12, 10)
    spent = goodput(found.attempts)
    assert {Cause.PRODUCTIVE, Cause.LOST, Cause.SAVE, Cause.DOWN} <= {part.cause for part in spent.parts}
    assert spent.usd == pytest.approx(spent.seconds * 36 / 3600)


def test_a_program_that_got_sigterm_saves_and_exits_as_preempted(tmp_path: Path) -> None:
    process = start(tmp_path, steps=100_000)
    wait_until((tmp_path / "runs" / "main" / "saved").exists)
    process.send_signal(signal.SIGTERM)
    code, said = end(process)
    assert code == ExitCode.PREEMPTED
    assert "stopped: SIGTERM after step" in said
    (attempt,) = history(tmp_path).starts
    assert attempt.ending == "PREEMPTED"
    assert int((tmp_path / "runs" / "main" / "saved").read_text()) == attempt.steps[-1].step


def test_only_the_leader_writes_the_run_and_every_host_its_failure(tmp_path: Path) -> None:
    of_slice = {"TPU_WORKER_HOSTNAMES": "host-a,host-b", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"}
    assert end(start(tmp_path, steps=9, fails_at=3, **of_slice, TPU_WORKER_ID="1"))[0] == ExitCode.CRASH
    assert not (tmp_path / "runs").exists()
    (path,) = (tmp_path / "failures" / "first").iterdir()
    record = json.loads(path.read_text())
    assert (record["host"], record["code"], record["cause"]) == ("host-b", 1, "ValueError: the loss is a fish")


def test_a_program_that_is_run_by_hand_is_told_what_to_set() -> None:
    with pytest.raises(NoJobFolder, match=r"JOB_FOLDER must be set .* write JOB_FOLDER=/tmp/job before the command"):
        Attempt(steps=1, environment={})


RESTORES = """
import time
from multislice_run.attempt import Attempt

with Attempt(steps=9) as attempt:
    print("restoring", flush=True)
    time.sleep(600)
"""


def test_a_program_that_gets_sigterm_before_its_first_step_ends_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "JOB_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", RESTORES]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "restoring\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == ExitCode.PREEMPTED


JOINED = """
import sys, time
import jax
from multislice_run.attempt import Attempt, Preempted

with Attempt(steps=1000) as attempt:
    jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
    attempt.resumed(140)
    print("resumed", flush=True)
    if sys.argv[3] == "restoring":
        time.sleep(600)
    for step in range(141, 1000):
        time.sleep(0.1)
        attempt.step(step)
        if attempt.stopping(step):
            raise Preempted(f"SIGTERM after step {step}")
"""


@pytest.mark.costs(cpu_seconds=20)
@pytest.mark.parametrize("when", ["restoring", "stepping"])
def test_hosts_that_jax_has_joined_end_together_also_in_a_resumed_run(tmp_path: Path, when: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "JOB_FOLDER": str(tmp_path), "JAX_PLATFORMS": "cpu", "TPU_WORKER_HOSTNAMES": "a,b"}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", JOINED, address, str(worker), when],
            env={**environment, "TPU_WORKER_ID": str(worker)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in range(2)
    ]
    try:
        assert [host.stdout and host.stdout.readline() for host in hosts] == ["resumed\n"] * 2
        hosts[1].send_signal(signal.SIGTERM)
        assert [host.wait(30) for host in hosts] == [ExitCode.PREEMPTED] * 2
    finally:
        for host in hosts:
            host.kill()

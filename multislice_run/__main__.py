"""Implements `python -m multislice_run check -- COMMAND`: does a program keep the contract of a job with `records`?

It runs the program three times, as one host, as the pods of a job would: it kills the first attempt after a save, ends
the second one with SIGTERM, and waits for the end of the third one.
"""

import argparse
import ipaddress
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from multislice_run.exit_codes import ExitCode
from multislice_run.pod import (
    HEARTBEAT_VARIABLE,
    JOB_FOLDER_VARIABLE,
    METRICS_ADDRESS_VARIABLE,
    METRICS_PORT,
    PRICE_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
)
from multislice_run.records.events import EventName

DESCRIPTION = """\
Check that a program keeps records as a job with `records: true` needs them. Use a small model that saves a few times
and ends within minutes. The command needs no cluster and no TPU, so it can run where the image is built.
"""
_POLL_SECONDS = 0.2


class Broken(Exception):
    """The program does not keep a part of the contract. The message says what to change."""


def _own_address() -> str:
    """Return a loopback address that no other check uses, because all serve metrics at the same port. Only Linux has
    more than one."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return str(ipaddress.ip_address("127.128.0.0") + os.getpid())


class Trial:
    """Attempts of the program in one job folder."""

    def __init__(self, command: list[str], folder: Path, seconds: float):
        self._command, self._folder, self._seconds = command, folder, seconds
        self._address = _own_address()
        self._heartbeat = folder / "heartbeat"
        self._program: subprocess.Popen[bytes] | None = None
        """The newest attempt."""

    def kill_after_a_save(self) -> int:
        """Run the first attempt until steps and a save are recorded, then kill it. Return the saved step."""
        program = self._start(0)
        self._wait(program, lambda: self._count(0) >= 1, "a step", "call attempt.step(number) after every step")
        if not self._heartbeat.exists():
            raise Broken(f"expected the file ${HEARTBEAT_VARIABLE} to be touched; do not remove it")
        self._require_metrics()
        self._wait(program, lambda: self._saved(0) > 0, "a save", "save earlier, and call attempt.saved(step)")
        self._end(program, signal.SIGKILL)
        return self._saved(0)

    def resume_and_terminate(self, saved: int) -> int:
        """Run the second attempt, end it with SIGTERM, and return the step that it saved."""
        program = self._start(1)
        self._wait(program, lambda: self._count(1) >= 1, "a step", "see its output above")
        self._require_resumed(1, saved)
        code = self._end(program, signal.SIGTERM)
        if code != ExitCode.PREEMPTED:
            raise Broken(
                f"expected exit code {ExitCode.PREEMPTED:d} after SIGTERM, got {code}; ask attempt.stopping(step) after"
                " every step, and if it is true, save and raise Preempted"
            )
        last, kept = self._last(1), self._saved(1)
        if kept != last:
            raise Broken(f"expected step {last}, the last one before SIGTERM, to be saved, got a save of step {kept}")
        return kept

    def finish(self, saved: int) -> None:
        code = self._wait_for_end(self._start(2))
        self._require_resumed(2, saved)
        if code != ExitCode.DONE:
            raise Broken(f"expected exit code 0 at the end, got {code}; see its output above")
        steps = self._opened(2)["steps"]
        if self._last(2) != steps:
            raise Broken(f"expected the last step to be {steps}, as Attempt(steps={steps}) says, got {self._last(2)}")

    def _start(self, restarts: int) -> subprocess.Popen[bytes]:
        variables = {
            JOB_FOLDER_VARIABLE: str(self._folder / "job"),
            RUN_ID_VARIABLE: "check",
            START_VARIABLE: str(restarts),
            PRICE_VARIABLE: "1",
            METRICS_ADDRESS_VARIABLE: self._address,
            HEARTBEAT_VARIABLE: str(self._heartbeat),
            "MEGASCALE_NUM_SLICES": "1",
            "MEGASCALE_SLICE_ID": "0",
            "TPU_WORKER_ID": "0",
            "TPU_WORKER_HOSTNAMES": "localhost",
        }
        try:
            self._program = subprocess.Popen(self._command, env={**os.environ, **variables}, start_new_session=True)
        except OSError as error:
            raise Broken(f"expected a program that can be started, got {error}; correct the command") from None
        return self._program

    def close(self) -> None:
        if self._program and self._program.poll() is None:
            os.killpg(self._program.pid, signal.SIGKILL)
            self._program.wait()

    def _wait(self, program: subprocess.Popen[bytes], is_true: Callable[[], bool], what: str, advice: str) -> None:
        until = time.monotonic() + self._seconds
        while not is_true():
            ended = program.poll() is not None
            if ended or time.monotonic() > until:
                how = f"ended with exit code {program.returncode}" if ended else f"ran for {self._seconds:g} s"
                self._end(program, signal.SIGKILL)
                raise Broken(f"expected {what} in the records, but the program {how} without one; {advice}")
            time.sleep(_POLL_SECONDS)

    def _wait_for_end(self, program: subprocess.Popen[bytes]) -> int:
        try:
            return program.wait(self._seconds)
        except subprocess.TimeoutExpired:
            self._end(program, signal.SIGKILL)
            raise Broken(f"expected an end within {self._seconds:g} s; choose fewer steps, or --minutes") from None

    def _end(self, program: subprocess.Popen[bytes], number: signal.Signals) -> int:
        if program.poll() is None:
            os.killpg(program.pid, number)
        return self._wait_for_end(program)

    def _require_metrics(self) -> None:
        place = f"http://{self._address}:{METRICS_PORT}/metrics"
        try:
            # A proxy of the machine does not reach this address.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(place, timeout=10) as answer:
                text: str = answer.read().decode()
        except OSError as error:
            raise Broken(f"expected metrics at {place}, got {error}; end what else listens there") from None
        if "trainer_steps_total" not in text:
            raise Broken(f"expected the metrics of the package at {place}, got those of another program")

    def _require_resumed(self, attempt: int, saved: int) -> None:
        step = self._opened(attempt)["step"]
        if step < saved:
            raise Broken(
                f"expected attempt {attempt} to resume at step {saved}, which is saved, got step {step}; restore the"
                " newest checkpoint below attempt.folder and call attempt.resumed(step)"
            )

    def _opened(self, attempt: int) -> Mapping[str, Any]:
        found = [line for line in self._lines("ledger", attempt) if line["event"] == EventName.RUN_STARTED]
        if not found:
            raise Broken(
                "expected the start of the run in the records; call attempt.resumed(step) before the first step"
            )
        return found[-1]

    def _saved(self, attempt: int) -> int:
        saves = [line for line in self._lines("ledger", attempt) if line["event"] == EventName.CHECKPOINT_SAVED]
        return max((line["step"] for line in saves), default=0)

    def _last(self, attempt: int) -> int:
        return max((line["step"] for line in self._lines("steps", attempt)), default=0)

    def _count(self, attempt: int) -> int:
        return len(self._lines("steps", attempt))

    def _lines(self, kind: str, attempt: int) -> list[dict[str, Any]]:
        # The process index and the number of the part are 0 here.
        paths = self._folder.glob(f"job/runs/*/{kind}/{attempt}-*.jsonl")
        return [json.loads(line) for path in sorted(paths) for line in path.read_text().splitlines()]


def check(command: list[str], folder: Path, seconds: float) -> None:
    """Run the program's attempts and print what holds.

    Raises:
        Broken: the program does not keep a part of the contract.
    """
    trial = Trial(command, folder, seconds)
    try:
        _check(trial)
    finally:
        trial.close()


def _check(trial: Trial) -> None:
    saved = trial.kill_after_a_save()
    print(f"ok: records, heartbeat and metrics; killed after the save of step {saved}", flush=True)
    saved = trial.resume_and_terminate(saved)
    print(f"ok: resumed, and ended by SIGTERM with exit code {ExitCode.PREEMPTED:d} and step {saved} saved", flush=True)
    trial.finish(saved)
    print("ok: resumed again, and finished with exit code 0", flush=True)


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m multislice_run", description=DESCRIPTION)
    parser.add_argument("check", choices=["check"])
    parser.add_argument("--minutes", type=float, default=10.0, help="time limit of each attempt (default: %(default)g)")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(asked.command, Path(folder), 60 * asked.minutes)
        except Broken as broken:
            print(f"broken: {broken}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

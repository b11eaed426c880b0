"""Supervisors as processes, each with a program of a few lines in place of the trainer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from etils import epath

from multislice_run.exit_codes import ExitCode
from multislice_run.pod import (
    ATTEMPT_BEGINS,
    JOB_FOLDER_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
    attempt_begins,
)
from multislice_run.records.reader import read_failures
from multislice_run.worlds import Roll, World, Worlds
from tests.workloads.hosts import wait_until

RUN = "run-1"
PROGRAM = """
import os, sys, time
from pathlib import Path
from multislice_run.supervised import SAVED, STEPPED, tell, wait_for_start
if "in-advance" in sys.argv:
    wait_for_start(os.environ)
folder, slice_ = Path(os.environ["JOB_FOLDER"]), os.environ["MEGASCALE_SLICE_ID"]
attempt = int(os.environ["JOB_RESTART_ATTEMPT"])
(folder / f"ran-{slice_}-{attempt}").write_text(str(os.getpid()))
order = folder / f"exit-{slice_}-{attempt}"
tell(STEPPED)
if (folder / "saves").exists():
    tell(SAVED)
while not order.exists():
    time.sleep(0.02)
sys.exit(int(order.read_text()))
"""


class Pods:
    """Supervisors of one job with slices of one host."""

    def __init__(self, folder: Path, slices: int, *options: str, max_restarts: int = 3, start_minutes: float = 1.0):
        self.folder, self.slices = folder, slices
        self._options = (*options, f"--max-restarts={max_restarts}", f"--start-minutes={start_minutes}")
        self._program = ["in-advance"] if "--in-advance" in options else []
        self.pods = [self.start(slice_) for slice_ in range(slices)]

    def start(self, slice_: int) -> subprocess.Popen[str]:
        variables = {
            JOB_FOLDER_VARIABLE: str(self.folder),
            RUN_ID_VARIABLE: RUN,
            START_VARIABLE: "0",
            "MEGASCALE_NUM_SLICES": str(self.slices),
            "MEGASCALE_SLICE_ID": str(slice_),
            "TPU_WORKER_HOSTNAMES": f"host-{slice_}",
        }
        command = [sys.executable, "-m", "multislice_run.supervisor", *self._options, "--"]
        return subprocess.Popen(
            [*command, sys.executable, "-c", PROGRAM, *self._program],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def pid(self, slice_: int, attempt: int) -> int:
        file = self.folder / f"ran-{slice_}-{attempt}"
        wait_until(lambda: file.exists() and file.read_text() != "")
        return int(file.read_text())

    def begun(self, attempt: int) -> None:
        """Wait until the programs of all pods run this attempt."""
        for slice_ in range(self.slices):
            self.pid(slice_, attempt)

    def exit(self, attempt: int, *codes: int) -> None:
        """End the programs of an attempt with these codes, the first slice first, once they run."""
        for slice_ in range(len(codes)):
            self.pid(slice_, attempt)
        for slice_, code in enumerate(codes):
            order = self.folder / f"exit-{slice_}-{attempt}"
            order.with_suffix(".partial").write_text(str(code))
            order.with_suffix(".partial").rename(order)

    def ends(self) -> list[int]:
        return [pod.wait(60) for pod in self.pods]

    def world(self) -> World:
        found = Worlds(epath.Path(self.folder), RUN).newest()
        assert found
        return found


@pytest.fixture(params=[(), ("--in-advance",)], ids=["started then", "in advance"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


def test_the_programs_of_all_pods_start_again_when_one_is_killed(tmp_path: Path, options: tuple[str, ...]) -> None:
    pods = Pods(tmp_path, 2, *options)
    os.kill(pods.pid(0, 0), signal.SIGKILL)
    pods.exit(0, 0, ExitCode.PEER_LOST)
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]
    assert (pods.world().counted, pods.world().number) == (1, 1)
    records = [json.loads(path.read_text()) for path in (tmp_path / "failures" / RUN).iterdir()]
    assert [(each["code"], each["cause"]) for each in records] == [(137, "the process was killed by SIGKILL")]
    assert not [name for name in os.listdir(tmp_path) if name.startswith("ran-") and name.endswith("-2")]


def test_a_code_that_a_restart_cannot_help_ends_every_pod(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    # The second host ends later by another code, as one that noticed only that it lost the first one.
    pods.exit(0, ExitCode.DIVERGED, ExitCode.PEER_LOST)
    assert pods.ends() == [ExitCode.DIVERGED, ExitCode.DIVERGED]


def test_pods_end_with_an_own_code_after_the_last_restart_that_counts(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2, max_restarts=1)
    pods.exit(0, ExitCode.HANG, ExitCode.HANG)
    pods.exit(1, ExitCode.PEER_LOST, ExitCode.CRASH)
    assert pods.ends() == [ExitCode.RESTARTS_USED_UP, ExitCode.RESTARTS_USED_UP]
    assert pods.pods[1].stdout
    assert "has used up its 1 restarts: attempt 2 ended with CRASH" in pods.pods[1].stdout.read()


def test_sigterm_ends_its_own_pod_and_the_others_wait_for_the_next(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    pods.begun(0)
    pods.pods[1].terminate()
    assert pods.pods[1].wait(60) == 128 + signal.SIGTERM
    pods.exit(0, ExitCode.PREEMPTED)
    pods.pods[1] = pods.start(1)
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]
    assert pods.world().counted == 0


def test_a_lost_pod_is_replaced_while_the_other_stays(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2, "--in-advance")
    program = pods.pid(1, 0)
    pods.pods[1].kill()
    wait_until(lambda: not Path(f"/proc/{program}").exists())
    pods.exit(0, ExitCode.PEER_LOST)
    pods.pods[1] = pods.start(1)
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]
    # JobSet counts the pod.
    assert pods.world().counted == 0


def test_a_pod_that_a_world_does_not_know_ends_the_attempt_of_the_others(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    pods.begun(0)
    pods.pods[1].kill()
    # Process 0 does not notice it by itself.
    pods.pods[1] = pods.start(1)
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]


def test_missing_hosts_are_named_when_an_attempt_does_not_begin_in_time(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2, start_minutes=0.02)
    pods.pods[1].kill()
    assert pods.pods[0].wait(60) == ExitCode.HANG
    assert pods.pods[0].stdout
    assert "1 of 2 hosts began, missing: slice 1 host 0" in pods.pods[0].stdout.read()


def test_a_pod_whose_variables_name_other_hosts_than_the_job_has_ends_at_once(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2, "--slices=3", "--hosts=2")
    assert pods.ends() == [ExitCode.INVALID_SPEC] * 2
    causes = {record.failure.cause for record in read_failures(epath.Path(tmp_path), [], run_ids=[RUN])}
    expected = "expected 3 slices (MEGASCALE_NUM_SLICES), got 2; expected 2 hosts per slice"
    assert [cause.partition(" (TPU")[0] for cause in causes] == [expected]


def test_an_old_pod_ends_when_another_has_taken_its_place(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    pods.begun(0)
    new = pods.start(1)
    wait_until(Roll(epath.Path(tmp_path), RUN, 1).is_wanted)
    pods.exit(0, ExitCode.PEER_LOST, ExitCode.PEER_LOST)
    assert pods.pods[1].wait(60) == ExitCode.PREEMPTED
    pods.exit(1, 0, 0)
    assert (pods.pods[0].wait(60), new.wait(60)) == (0, 0)


def test_storage_that_fails_for_a_while_is_asked_again(tmp_path: Path) -> None:
    # A file in place of the folder of rolls.
    (tmp_path / "starts").write_text("")
    pods = Pods(tmp_path, 1)
    assert pods.pods[0].stdout
    assert "does not answer, trying again" in pods.pods[0].stdout.readline()
    (tmp_path / "starts").unlink()
    pods.exit(0, 0)
    assert pods.ends() == [0]


def test_new_pods_after_a_bad_host_continue_the_count_of_attempts(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    pods.exit(0, ExitCode.BAD_HOST, ExitCode.PEER_LOST)
    assert pods.ends() == [ExitCode.BAD_HOST, ExitCode.BAD_HOST]
    pods.pods = [pods.start(slice_) for slice_ in range(2)]
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]


def test_slices_go_on_without_one_that_is_missing_and_take_it_in_when_it_is_back(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2, "--min-slices=1", "--wait-seconds=8")
    pods.begun(0)
    pods.pods[0].kill()
    pods.exit(0, 0, ExitCode.PEER_LOST)
    # The second slice is the first and only one of this attempt.
    pods.pid(0, 1)
    assert pods.world().slices == [1]
    pods.pods[0] = pods.start(0)
    pods.exit(2, 0, 0)
    assert pods.ends() == [0, 0]
    assert (pods.world().slices, pods.world().counted) == ([0, 1], 0)


def test_each_end_has_one_record_which_is_of_its_attempt_and_its_process(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 1, "--in-advance", max_restarts=1)
    for attempt in range(2):
        os.kill(pods.pid(0, attempt), signal.SIGKILL)
    assert pods.ends() == [ExitCode.RESTARTS_USED_UP]
    names = sorted(path.stem.rsplit("-", 2) for path in (tmp_path / "failures" / RUN).iterdir())
    assert [(host, attempt) for host, attempt, _ in names] == [("host-0", "0"), ("host-0", "1")]
    began = [int((tmp_path / f"ran-0-{attempt}").stat().st_mtime) for attempt in range(2)]
    assert [int(second) for _, _, second in names] == pytest.approx(began, abs=1)
    assert pods.pods[0].stdout
    told = pods.pods[0].stdout.read().splitlines()
    assert [line for line in told if ATTEMPT_BEGINS.fullmatch(line)] == [attempt_begins(0), attempt_begins(1)]


def test_a_program_that_stands_still_is_killed_when_the_others_have_ended(tmp_path: Path) -> None:
    pods = Pods(tmp_path, 2)
    pods.begun(0)
    os.kill(pods.pid(1, 0), signal.SIGSTOP)
    pods.exit(0, ExitCode.HANG)
    pods.exit(1, 0, 0)
    assert pods.ends() == [0, 0]
    assert (pods.world().counted, pods.world().cause) == (1, "HANG")

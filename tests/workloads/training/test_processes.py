"""The trainer as GKE runs it: one process per host, joined by JAX's own detection, over loopback."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.processes import running_hosts
from tests.workloads.jobs import small_job
from workloads.progress import CheckpointSkipped, RolledBack, RunStarted, StepProgress
from workloads.spec import ExitCode, JobSpec

TIMEOUT_SECONDS = 600

SPOILT_WEIGHTS = """
from dataclasses import replace
from workloads.training.step import CompiledProgram
step = CompiledProgram.step
def spoilt(self, state, batch):
    if int(state.batch) in (3, 8):
        scale = state.parameters["final_scale"] * float("nan")
        state = replace(state, parameters={**state.parameters, "final_scale": scale})
    return step(self, state, batch)
CompiledProgram.step = spoilt
"""
"""Code that runs in every process before its own, as Python's `sitecustomize`."""

SLOW_AFTER_7 = """
import time
from workloads.training.data import Batches
training = Batches.training
def slow(self, number):
    if number >= 7:
        time.sleep(3)
    return training(self, number)
Batches.training = slow
"""
"""The same, where a kill after step 7 comes before the save of step 9, however late the test reads of step 7."""

BYTES_READ = """
import tensorstore
from workloads.training.restore import Restore
spread = Restore.spread
def counted(self, found):
    (metric,) = tensorstore.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read", True)
    print("bytes read:", sum(one["value"] for one in metric["values"]), flush=True)
    return spread(self, found)
Restore.spread = counted
"""
"""The same, which also prints the bytes of arrays that this host has read."""


def two_slices_of_two_hosts(storage: Path) -> JobSpec:
    return small_job(storage, replica=2, fsdp=4, hosts=2, steps=12, save_every_steps=3)


def as_first_code(folder: Path, code: str) -> dict[str, str]:
    """Return the environment of processes that run `code` before their own."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{Path(__file__).parents[3]}"}


@dataclass
class Outcome:
    """Output of the leader: its first step, the loss of each step, and everything else."""

    began: int
    losses: dict[int, float]
    other: list[str]


def train(
    job: JobSpec,
    attempt: int,
    folder: Path,
    kill_after_step: int | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run all hosts to their end. Optionally, kill one of them after a step."""
    outcome = Outcome(-1, {}, [])
    with running_hosts(job, attempt, folder, TIMEOUT_SECONDS, environment) as hosts:
        for line in hosts.follow():
            if started := RunStarted.parse(line):
                outcome.began = started.step
            elif step := StepProgress.parse(line):
                outcome.losses[step.step] = step.loss
                if step.step == kill_after_step:
                    hosts.all[2].process.kill()
            else:
                outcome.other.append(line)
        assert bool(hosts.failed()) == (kill_after_step is not None)
    return outcome


@pytest.mark.complete
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_four_hosts_go_on_bitwise_after_one_was_killed(tmp_path: Path) -> None:
    uninterrupted = train(two_slices_of_two_hosts(tmp_path / "one"), 0, tmp_path / "logs-one")
    assert uninterrupted.began == 0
    assert list(uninterrupted.losses) == list(range(1, 13))

    job = two_slices_of_two_hosts(tmp_path / "two")
    slow = as_first_code(tmp_path / "slow", SLOW_AFTER_7)
    killed = train(job, 0, tmp_path / "logs-killed", kill_after_step=7, environment=slow)
    restarted = train(job, 1, tmp_path / "logs-restarted")
    assert restarted.began in (3, 6)
    assert killed.losses.items() <= uninterrupted.losses.items()
    assert {**killed.losses, **restarted.losses} == uninterrupted.losses


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_hosts_go_back_together_and_on_other_slices_when_one_of_them_cannot_read_its_part(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=1, fsdp=4, hosts=2, steps=4, save_every_steps=2)
    uninterrupted = train(job, 0, tmp_path / "logs-first")
    newest = tmp_path / "storage" / "runs" / "run-1" / "checkpoints" / "4"
    part = max(newest.glob("state/ocdbt.process_1/d/*"), key=lambda path: path.stat().st_size)
    part.write_bytes(part.read_bytes()[:1000])
    two_slices = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=4, save_every_steps=2)
    again = train(two_slices, 1, tmp_path / "logs-again")
    assert again.began == 2
    (skipped,) = filter(None, map(CheckpointSkipped.parse, again.other))
    assert skipped.step == 4
    assert Path(skipped.folder).is_dir()
    assert again.losses == pytest.approx({step: uninterrupted.losses[step] for step in (3, 4)}, rel=1e-5)


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_the_first_of_four_slices_reads_for_all_and_all_go_back_when_it_cannot(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=4, fsdp=2, hosts=1, steps=6, save_every_steps=2)
    uninterrupted = train(job, 0, tmp_path / "logs-first")
    newest = tmp_path / "storage" / "runs" / "run-1" / "checkpoints" / "6"
    part = max(newest.glob("state/ocdbt.process_0/d/*"), key=lambda path: path.stat().st_size)
    part.write_bytes(part.read_bytes()[:1000])
    counting = as_first_code(tmp_path / "counting", BYTES_READ)
    again = train(job, 1, tmp_path / "logs-again", environment=counting)
    assert again.began == 4
    assert again.losses == {step: uninterrupted.losses[step] for step in (5, 6)}
    logs = [path.read_text() for path in sorted((tmp_path / "logs-again").glob("*.log"))]
    read = [int(found) for log in logs for found in re.findall(r"bytes read: (\d+)", log)]
    stored = sum(path.stat().st_size for path in newest.with_name("4").glob("state/**/d/*"))
    assert read[0] > 0.9 * stored > 0
    assert read[1:] == [0, 0, 0]


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_hosts_roll_back_together_and_more_than_once(tmp_path: Path) -> None:
    schedule = {"steps": 7, "save_every_steps": 2, "max_skipped_steps": 1, "max_rollbacks": 2, "keep_checkpoints": 9}
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, save_every_minutes=0.01, **schedule)
    rolled = train(job, 0, tmp_path / "logs", environment=as_first_code(tmp_path / "spoilt", SPOILT_WEIGHTS))
    first, second = filter(None, map(RolledBack.parse, rolled.other))
    assert (first.number, first.from_step, first.last_left_out) == (1, 5, 4)
    assert (second.number, second.last_left_out) == (2, 9)
    assert max(rolled.losses) == 7


@pytest.mark.costs(cpu_seconds=25)
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_hosts_of_cpu_devices_compile_again(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=1, save_every_steps=1)
    cache = tmp_path / "compiled"
    train(job, 0, tmp_path / "logs", environment={"JAX_COMPILATION_CACHE_DIR": str(cache)})
    assert not cache.exists()


@pytest.mark.costs(cpu_seconds=25)
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_host_reports_the_cause_of_a_common_fault(tmp_path: Path) -> None:
    job = small_job(tmp_path, replica=1, fsdp=4, hosts=2)
    job = job.model_copy(update={"data": job.data.model_copy(update={"max_bytes": 400})})
    with running_hosts(job, 0, tmp_path / "logs", TIMEOUT_SECONDS, {}) as hosts:
        codes = [host.process.wait(TIMEOUT_SECONDS) for host in hosts.all]
    assert codes == [ExitCode.INVALID_SPEC] * 2

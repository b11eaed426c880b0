"""The trainer as GKE runs it: one process per host, joined by JAX's own detection, over loopback."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.hosts import Hosts
from tests.workloads.hosts import TIMEOUT_SECONDS, attempt, first_code, sabotage
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import losses, parsed
from workloads.progress import CheckpointSkipped, RolledBack, RunStarted, StepProgress
from workloads.spec import ExitCode, JobSpec

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
"""First code of every process."""

SLOW_AFTER_7 = sabotage("time.sleep(3)", when="number >= 7")
"""A kill after step 7 comes before the save of step 9, however late the test reads of step 7."""

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


def trained(job: JobSpec, number: int, logs: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Run all hosts to their end without a failure, and return the output of the leader."""
    ended = attempt(job, number, logs, environment or {})
    assert not any(ended.codes)
    return ended.lines


def began(lines: list[str]) -> int:
    (started,) = parsed(RunStarted, lines)
    return started.step


def cut_largest_file(folder: Path) -> None:
    part = max(folder.glob("d/*"), key=lambda path: path.stat().st_size)
    part.write_bytes(part.read_bytes()[:1000])


@pytest.mark.complete
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_four_hosts_go_on_bitwise_after_one_was_killed(tmp_path: Path) -> None:
    def kill_after_step_7(hosts: Hosts, line: str) -> None:
        if (step := StepProgress.parse(line)) and step.step == 7:
            hosts.all[2].process.kill()

    uninterrupted = trained(two_slices_of_two_hosts(tmp_path / "one"), 0, tmp_path / "logs-one")
    assert began(uninterrupted) == 0
    assert list(losses(uninterrupted)) == list(range(1, 13))

    job = two_slices_of_two_hosts(tmp_path / "two")
    slow = first_code(tmp_path / "slow", SLOW_AFTER_7)
    killed = attempt(job, 0, tmp_path / "logs-killed", slow, kill_after_step_7)
    assert any(killed.codes)
    restarted = trained(job, 1, tmp_path / "logs-restarted")
    assert began(restarted) in (3, 6)
    assert losses(killed.lines).items() <= losses(uninterrupted).items()
    assert losses(killed.lines) | losses(restarted) == losses(uninterrupted)


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_hosts_go_back_together_and_on_other_slices_when_one_of_them_cannot_read_its_part(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=1, fsdp=4, hosts=2, steps=4, save_every_steps=2)
    uninterrupted = losses(trained(job, 0, tmp_path / "logs-first"))
    cut_largest_file(tmp_path / "storage/runs/run-1/checkpoints/4/state/ocdbt.process_1")
    two_slices = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=4, save_every_steps=2)
    again = trained(two_slices, 1, tmp_path / "logs-again")
    assert began(again) == 2
    (skipped,) = parsed(CheckpointSkipped, again)
    assert skipped.step == 4
    assert Path(skipped.folder).is_dir()
    assert losses(again) == pytest.approx({step: uninterrupted[step] for step in (3, 4)}, rel=1e-5)


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_the_first_of_four_slices_reads_for_all_and_all_go_back_when_it_cannot(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=4, fsdp=2, hosts=1, steps=6, save_every_steps=2)
    uninterrupted = losses(trained(job, 0, tmp_path / "logs-first"))
    checkpoints = tmp_path / "storage" / "runs" / "run-1" / "checkpoints"
    cut_largest_file(checkpoints / "6" / "state" / "ocdbt.process_0")
    again = attempt(job, 1, tmp_path / "logs-again", first_code(tmp_path / "counting", BYTES_READ))
    assert not any(again.codes)
    assert began(again.lines) == 4
    assert losses(again.lines) == {step: uninterrupted[step] for step in (5, 6)}
    read = [int(found) for log in again.logs for found in re.findall(r"bytes read: (\d+)", log)]
    stored = sum(path.stat().st_size for path in checkpoints.glob("4/state/**/d/*"))
    assert read[0] > 0.9 * stored > 0
    assert read[1:] == [0, 0, 0]


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_hosts_roll_back_together_and_more_than_once(tmp_path: Path) -> None:
    schedule = {"steps": 7, "save_every_steps": 2, "max_skipped_steps": 1, "max_rollbacks": 2, "keep_checkpoints": 9}
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, save_every_minutes=0.01, **schedule)
    rolled = trained(job, 0, tmp_path / "logs", first_code(tmp_path / "spoilt", SPOILT_WEIGHTS))
    first, second = parsed(RolledBack, rolled)
    assert (first.number, first.from_step, first.last_left_out) == (1, 5, 4)
    assert (second.number, second.last_left_out) == (2, 9)
    assert max(losses(rolled)) == 7


@pytest.mark.costs(cpu_seconds=40)
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_hosts_of_cpu_devices_compile_again(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=1, save_every_steps=1)
    cache = tmp_path / "compiled"
    trained(job, 0, tmp_path / "logs", {"JAX_COMPILATION_CACHE_DIR": str(cache)})
    assert not cache.exists()


@pytest.mark.costs(cpu_seconds=40)
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_host_reports_the_cause_of_a_common_fault(tmp_path: Path) -> None:
    job = changed(small_job(tmp_path, replica=1, fsdp=4, hosts=2), data={"max_bytes": 400})
    assert attempt(job, 0, tmp_path / "logs").codes == [ExitCode.INVALID_SPEC] * 2

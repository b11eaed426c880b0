"""The trainer as GKE runs it: one process per host, joined by JAX's own detection, over loopback."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.hosts import Hosts
from tests.workloads.history import history
from tests.workloads.hosts import TIMEOUT_SECONDS, attempt, first_code, sabotage
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import losses, parsed
from workloads.progress import (
    CheckpointSkipped,
    FewerSlices,
    LocalCheckpointSkipped,
    RestoredLocally,
    RolledBack,
    RunStarted,
    StepProgress,
)
from workloads.spec import JOB_SPEC_VARIABLE, ExitCode, JobSpec

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

SLOW = "time.sleep(3)"
"""What a host does before each step after that of a kill. The kill comes before the next save, however late the test
reads of its step."""

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


def two_slices_of_two_hosts(storage: Path, **training: Any) -> JobSpec:
    return small_job(storage, replica=2, fsdp=4, hosts=2, **{"steps": 12, "save_every_steps": 3, **training})


def trained(job: JobSpec, number: int, logs: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Run all hosts to their end without a failure, and return the output of the leader."""
    ended = attempt(job, number, logs, environment or {})
    assert not any(ended.codes)
    return ended.lines


def killed(job: JobSpec, after: int, logs: Path, environment: Mapping[str, str]) -> list[str]:
    """Run a job whose third host is killed after a step, and return the output of the leader."""

    def kill(hosts: Hosts, line: str) -> None:
        if (step := StepProgress.parse(line)) and step.step == after:
            hosts.all[2].process.kill()

    ended = attempt(job, 0, logs, environment, kill)
    assert any(ended.codes)
    return ended.lines


def began(lines: list[str]) -> int:
    (started,) = parsed(RunStarted, lines)
    return started.step


def cut_largest_file(folder: Path) -> None:
    part = max(folder.glob("d/*"), key=lambda path: path.stat().st_size)
    part.write_bytes(part.read_bytes()[:1000])


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


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_hosts_of_cpu_devices_compile_again(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=1, save_every_steps=1)
    cache = tmp_path / "compiled"
    trained(job, 0, tmp_path / "logs", {"JAX_COMPILATION_CACHE_DIR": str(cache)})
    assert not cache.exists()


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_host_keeps_its_compiled_programs_for_the_next_attempt_in_its_pod(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, steps=1, save_every_steps=1)
    folders = first_code(tmp_path / "pods", OWN_CACHE.format(folders=str(tmp_path / "kept")))
    trained(job, 0, tmp_path / "logs", {**folders, "JAX_ENABLE_COMPILATION_CACHE": "true"})
    assert {path.parent.name for path in tmp_path.glob("kept/*/jit_local_step-*")} == {"0", "1"}


@pytest.mark.costs(cpu_seconds=40)
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_host_reports_the_cause_of_a_common_fault(tmp_path: Path) -> None:
    job = changed(small_job(tmp_path, replica=1, fsdp=4, hosts=2), data={"max_bytes": 400})
    assert attempt(job, 0, tmp_path / "logs").codes == [ExitCode.INVALID_SPEC] * 2


OWN_POD = """
import os
number = 2 * int(os.environ["MEGASCALE_SLICE_ID"]) + int(os.environ["TPU_WORKER_ID"])
os.environ["LOCAL_CHECKPOINTS"] = os.path.join({memory!r}, {pods!r}[number])
"""
"""First code with which each of four hosts has the memory of a pod."""


OWN_CACHE = """
import os
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join({folders!r}, os.environ["MEGASCALE_SLICE_ID"])
"""
"""First code with which each of several hosts has the compilation cache of a pod."""


def in_pods(folder: Path, memory: Path, pods: str, code: str = "") -> dict[str, str]:
    """Return the environment of four hosts in these pods, each named by a letter, in the order of the hosts."""
    return first_code(folder, OWN_POD.format(memory=str(memory), pods=pods) + code)


def flip_one_bit(arrays: Path) -> None:
    content = bytearray(arrays.read_bytes())
    content[1000] ^= 1
    arrays.write_bytes(content)


@pytest.mark.complete
@pytest.mark.timeout(6 * TIMEOUT_SECONDS)
def test_after_a_kill_hosts_go_on_from_the_memory_of_any_slice_that_has_the_state_undamaged(tmp_path: Path) -> None:
    uninterrupted = losses(trained(two_slices_of_two_hosts(tmp_path / "one"), 0, tmp_path / "logs-one"))
    job = two_slices_of_two_hosts(tmp_path / "two", local_save_every_steps=1)
    memory = tmp_path / "memory"
    slow = in_pods(tmp_path / "slow", memory, "abcd", sabotage(SLOW, when="number >= 7"))
    before = losses(killed(job, 7, tmp_path / "logs-killed", slow))
    # A read from storage would fail.
    for part in (tmp_path / "two").rglob("checkpoints/*/state/**/d/*"):
        part.unlink()
    shutil.copytree(memory, tmp_path / "kept")
    # All pods stay; the second slice has new ones; the state of a host of the first slice is damaged.
    for case, (pods, damaged, held) in enumerate([("abcd", "", 4), ("abef", "", 2), ("abcd", "b", 2)]):
        shutil.rmtree(memory)
        shutil.copytree(tmp_path / "kept", memory)
        for arrays in memory.glob(f"{damaged}/*/arrays") if damaged else ():
            flip_one_bit(arrays)
        shutil.rmtree(tmp_path / "three", ignore_errors=True)
        shutil.copytree(tmp_path / "two", tmp_path / "three")
        again = job.model_copy(update={"storage": job.storage.model_copy(update={"path": str(tmp_path / "three")})})
        restarted = trained(again, 1, tmp_path / f"logs-{case}", in_pods(tmp_path / f"pods-{case}", memory, pods))
        (restored,) = parsed(RestoredLocally, restarted)
        assert (restored.hosts, restored.of_hosts) == (held, 4)
        reasons = [each.reason for each in parsed(LocalCheckpointSkipped, restarted) if each.step == restored.step]
        assert len(reasons) == len(damaged)
        assert all(reason.startswith("arrays of process 0, 1 are not what was saved: ") for reason in reasons)
        assert max(before) - 1 <= restored.step <= max(before)
        assert before | losses(restarted) == uninterrupted
        # The leader was aborted before it could store the lines of its last steps.
        stored = [json.loads(line) for part in (tmp_path / "three").rglob("steps/*.jsonl") for line in part.open()]
        assert {line["step"] for line in stored} == {*uninterrupted}


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_hosts_take_the_checkpoint_in_storage_if_no_pod_has_some_of_the_shards(tmp_path: Path) -> None:
    job = two_slices_of_two_hosts(tmp_path / "storage", steps=6, local_save_every_steps=1)
    memory = tmp_path / "memory"
    slow = in_pods(tmp_path / "slow", memory, "abcd", sabotage(SLOW, when="number >= 5"))
    killed(job, 5, tmp_path / "logs-killed", slow)
    for arrays in memory.glob("d/*/arrays"):
        arrays.write_bytes(arrays.read_bytes()[:-40])
    restarted = trained(job, 1, tmp_path / "logs-again", in_pods(tmp_path / "again", memory, "aecd"))
    assert began(restarted) == 3
    reasons = [each.reason for each in parsed(LocalCheckpointSkipped, restarted)]
    assert {reason.partition(" must")[0] for reason in reasons} == {
        "process 3: ValueError: arrays",
        "some of its shards are in none of the 4 pods",
    }


STEPS = 24
MEMBERS = {0: 3, 8: 2, 15: 3}
"""Number of slices from each number of steps done on."""

STOPS = """
from workloads.training.runtime import Processes
def should_stop(self):
    self.trains.set()
    return next(self._asks) > {steps}
Processes.should_stop = should_stop
"""
"""First code with which all hosts stop after this many steps, as after SIGTERM."""


def elastic(storage: Path) -> JobSpec:
    """Return a job with a batch of 16 over three slices of two devices, with three rows each, two of 18 padding."""
    return small_job(storage, replica=3, fsdp=2, min_count=2, steps=STEPS, save_every_steps=5)


def part(job: JobSpec, slices: int, number: int, until: int = STEPS, begins: int = 0) -> list[str]:
    """Run `job` on `slices` slices from step `begins` on, stop it after step `until`, and return its output."""
    folder = Path(job.storage.path).with_suffix(f".{number}")
    folder.mkdir()
    code = first_code(folder / "site", STOPS.format(steps=until - begins))
    ended = attempt(job.on_slices(slices), number, folder / "logs", code | {JOB_SPEC_VARIABLE: job.model_dump_json()})
    assert {*ended.codes} == {ExitCode.DONE if until == STEPS else ExitCode.PREEMPTED}
    return ended.lines


def attempts(jobs: Mapping[int, JobSpec]) -> list[list[str]]:
    """Return the output of each attempt. `jobs` has the job on each number of slices."""
    begins, ends = [*MEMBERS], [*MEMBERS][1:] + [STEPS]
    slices = MEMBERS.values()
    return [
        part(jobs[count], count, number, until, begin)
        for number, (count, begin, until) in enumerate(zip(slices, begins, ends, strict=True))
    ]


@pytest.mark.complete
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_a_job_goes_on_without_a_slice_and_with_it_again_as_if_it_were_resumed_by_hand(tmp_path: Path) -> None:
    uninterrupted = losses(part(elastic(tmp_path / "one"), 3, 0))
    job = elastic(tmp_path / "two")
    members = attempts(dict.fromkeys((2, 3), job))
    assert [found.step for lines in members for found in parsed(RunStarted, lines)] == [*MEMBERS]
    assert [parsed(FewerSlices, lines) for lines in members] == [[], [FewerSlices(2, 3, 2, 16, 0)], []]
    assert history(tmp_path / "two") == ([*range(STEPS)], [])
    resumed = elastic(tmp_path / "three")
    hands = attempts({count: resumed.on_slices(count) for count in (2, 3)})
    assert [parsed(FewerSlices, lines) for lines in hands] == [[], [], []]
    assert [losses(lines) for lines in members] == [losses(lines) for lines in hands], "bitwise equal"
    # On the same slices, losses are bitwise equal. On others, sums over devices have another order.
    found = {step: loss for lines in members for step, loss in losses(lines).items()}
    assert losses(members[0]) == {step: uninterrupted[step] for step in range(1, 9)}
    assert found == pytest.approx(uninterrupted, rel=1e-5)


SEALED = """
import ctypes, os
CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result:
        raise OSError(ctypes.get_errno(), "the file system could not be made read-only")
def set_attributes(path, flags, added, removed):
    attributes = (ctypes.c_uint64 * 4)(added, removed, 0, 0)
    done(libc.syscall(MOUNT_SETATTR, AT_FDCWD, path, flags, attributes, ctypes.sizeof(attributes)))
done(libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if os.geteuid() else 0)))
done(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
writable = [os.fsencode(os.environ[name]) for name in ("TMPDIR", "SEALED_BUCKET")]
for path in writable:
    done(libc.mount(path, path, None, ctypes.c_ulong(MS_BIND), None))
set_attributes(b"/", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0)
for path in writable:
    set_attributes(path, 0, 0, MOUNT_ATTR_RDONLY)
try:
    open(os.path.join(os.environ["HOME"], "written"), "w")
except OSError as refused:
    print("sealed:", refused.strerror, flush=True)
"""
"""Code that runs in the process before its own, as Python's `sitecustomize`. mount_setattr(2) needs Linux 5.12."""


@pytest.mark.complete
def test_it_trains_saves_and_profiles_where_nothing_but_its_temporary_folder_can_be_written(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("tmp", "bucket", "home")}
    for place in places.values():
        place.mkdir()
    environment = first_code(tmp_path / "sealed", SEALED) | {
        "TMPDIR": str(places["tmp"]),
        "SEALED_BUCKET": str(places["bucket"]),
        "HOME": str(places["home"]),
        "JAX_COMPILATION_CACHE_DIR": str(places["tmp"] / "jax"),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
    }
    job = small_job(places["bucket"], replica=1, fsdp=2, steps=4, save_every_steps=2, profile_steps=(2, 3))
    ended = attempt(job, 0, tmp_path / "logs", environment)
    assert ended.codes == [0]
    assert [line for line in ended.lines if "Read-only file system" in line] == ["sealed: Read-only file system"]
    run = places["bucket"] / "runs" / "run-1"
    assert {path.name for path in (run / "checkpoints").iterdir()} >= {"4"}
    assert os.listdir(places["tmp"] / "jax")
    assert os.listdir(places["home"]) == []

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli import stack_file
from cli.answer import INTERRUPTED, Halt
from cli.observed.files import Failure, Files
from cli.observed.snapshot import JobStatus
from cli.sandbox_folder import StackOfSandbox
from cli.status import Watch
from cli.up import SandboxCommands, completed, failed, follow, up, without_jobs
from infra.cluster.job_pods import newest
from infra.cluster.job_state import Kind
from sandbox.programs import ProgramsError
from sandbox.site import Site, create
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, START
from tests.cli.api_server import Played
from tests.cli.explain.cases import JOB, said
from tests.cli.shown import check, console, read_output, text
from tests.cli.standing import finish, stack
from workloads.report.training import Training

SANDBOX = Site(Path("/home/me/stack/.sandbox"), 64)
COMMANDS = SandboxCommands(StackOfSandbox("local", SANDBOX.root), SANDBOX, Path("/opt/programs/kubectl"))
TRAINING = Training(
    "resumed at step 150",
    "r1",
    200,
    200,
    2.5,
    held_out_loss=2.5987654,
    losses=((200, 2.5),),
    submission=JOB.uid,
    restarts=1,
    ended=True,
)
COMPLETED = replace(JOB, terminal="Completed", existing_run="resume", restarts=1, files=Files(TRAINING))
FAILED = replace(
    JOB,
    terminal="Failed",
    created=START,
    conditions=(
        said("Failed", True, "FailJobSetFailurePolicyAction", "jobset failed due to one or more job failures"),
    ),
    pods=newest([api_objects.pod(0, 1, "Failed", exit_code=22)], START),
)


def test_a_folder_with_other_files_never_becomes_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(Halt, match=r"has other files"):
        up(stack_file.find("local"), tmp_path, console())

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_first_up_begins_with_the_review_and_what_will_take_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    shown = console()

    with pytest.raises(ProgramsError, match="needs Go"):
        up(stack_file.find("local"), tmp_path / "sandbox", shown)

    begins, _, _ = read_output(shown).partition("programs: begins")
    assert [line.split()[0] for line in begins.splitlines()[2:7]] == ["Price", "Fits", "Pace", "Queue", "Verdict"]
    assert "built from source, once and besides downloads: pulumi, helm" in begins
    assert re.search(r"infrastructure +about \d+ s\n", begins)
    assert re.search(r"The first training step is about \d+ (s|min) away", begins)


def followed(server: Played, folder: Path, monkeypatch: pytest.MonkeyPatch, waits: Callable[[], object]) -> JobStatus:
    """Follow the job of the server; each wait does `waits` instead."""
    monkeypatch.setattr("cli.up.time.sleep", lambda _: waits())
    return follow(Watch(stack(server, folder), "tiny", console()), replace(COMMANDS, site=create(folder / "sandbox")))


def test_a_job_is_followed_to_its_end(server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.up.daemon.running", lambda _: 1)
    job = followed(server, tmp_path, monkeypatch, lambda: finish(server, "Failed"))
    assert (job.state, job.pods[0].exit_code) == ("failed", 22)


def test_ctrl_c_closes_the_view_and_says_that_the_job_goes_on(server: Played, tmp_path: Path) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(Halt, match=r"the job continues") as caught:
        follow(Watch(stack(server, tmp_path), "tiny", console()), replace(COMMANDS, site=create(tmp_path / "sandbox")))
    assert caught.value.exit_status == INTERRUPTED
    timer.join()


def test_a_sandbox_that_stopped_ends_the_view(server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Halt, match=r"the sandbox stopped while the job was running; .*daemon\.log"):
        followed(server, tmp_path, monkeypatch, lambda: None)


def test_the_last_lines_of_a_complete_job_are_its_losses_its_checkpoints_and_what_to_try() -> None:
    check("closing-completed", text(completed(COMPLETED, "gs://checkpoints/tiny", COMMANDS), 80, soft_wrap=True))


def test_losses_without_a_record_of_the_end_are_not_the_last_ones() -> None:
    job = replace(COMPLETED, files=Files(replace(TRAINING, step=195, ended=False)))
    shown = text(completed(job, "gs://checkpoints/tiny", COMMANDS), 200, soft_wrap=True)
    assert "the run has no record of its end; its last record is of step 195" in shown
    assert "loss" not in shown


@pytest.mark.parametrize("kind", [Kind.FUNCTION, Kind.CONTAINER])
def test_the_last_lines_of_another_job_than_a_trainer_say_nothing_of_training(kind: Kind) -> None:
    job = replace(JOB, kind=kind, terminal="Completed")
    shown = text(completed(job, "gs://checkpoints/tiny", COMMANDS), 200, soft_wrap=True)
    assert [word for word in ("loss", "checkpoints", "existing_run", "trains", "None") if word in shown] == []
    assert "multislice logs -s local --sandbox /home/me/stack/.sandbox tiny" in shown
    assert ("--replace '**::job-tiny'" in shown) == (kind is Kind.CONTAINER)


def test_the_last_lines_of_a_program_with_records_name_its_folder_and_no_setting_that_it_lacks() -> None:
    shown = text(completed(replace(COMPLETED, existing_run=""), "gs://b/tiny", COMMANDS), 200, soft_wrap=True)
    assert re.search(r"\nfiles +gs://b/tiny/runs/r1\n", shown)
    assert [word for word in ("checkpoints", "existing_run") if word in shown] == []
    assert re.search(r"\nloss +2\.5000\n", shown)


def test_a_job_that_always_begins_a_new_run_is_submitted_again_to_train_from_scratch() -> None:
    shown = text(completed(replace(COMPLETED, existing_run="new"), "gs://b/tiny", COMMANDS), 200, soft_wrap=True)
    assert re.search(r"train from scratch +multislice up .* --replace '\*\*::job-tiny'", shown)


def test_the_last_lines_of_a_failed_job_are_the_reason_and_thirty_lines_of_the_hosts_log(tmp_path: Path) -> None:
    commands = replace(COMMANDS, site=Site(tmp_path, 64))
    folder = commands.log_folder(FAILED.pods[0])
    folder.mkdir(parents=True)
    (folder / "trainer.log").write_text("".join(f"line {number}\n" for number in range(100)))

    shown = text(failed(FAILED, commands), 80, soft_wrap=True)

    check("closing-failed", shown.replace(str(tmp_path), "/home/me/stack/.sandbox"))


def test_the_log_of_another_host_is_not_shown_for_that_of_the_first_cause() -> None:
    record = Failure(START + 60, "tiny-slice-1-1.tiny", 22, "ValueError: no such preset", 0, 0)
    shown = text(failed(replace(FAILED, files=Files(failures=(record,))), COMMANDS), 200, soft_wrap=True)
    assert "host slice-1-1 exited 22" in shown
    assert "ValueError: no such preset" in shown
    assert "the end of its log" not in shown


def test_a_job_that_was_deleted_has_failed() -> None:
    assert "tiny failed: Deleted" in text(failed(replace(JOB, uid=""), COMMANDS), 80)


def test_each_restart_is_listed_with_its_cause() -> None:
    again = [api_objects.pod(*host, attempt=1, created=72) for host in HOSTS]
    record = Failure(START + 60, "tiny-slice-1-0.tiny", 137, "killed", 0, 0)
    job = replace(FAILED, restarts=1, pods=newest(again, START), files=Files(failures=(record,)))
    assert "restart 1: host slice-1-0 exited 137 (SIGKILL)" in text(failed(job, COMMANDS), 80)


def test_a_job_that_used_up_its_restarts_names_what_ended_its_last_attempt() -> None:
    record = Failure(START + 60, "slice-1-1", 1, "no such row", 0, 0)
    job = replace(FAILED, pods=(), max_restarts=3, restarts_counted=3, processes_counted=3)
    shown = text(failed(replace(job, files=Files(failures=(record,))), COMMANDS), 200, soft_wrap=True)
    assert "the restarts are used up" in shown
    assert "host slice-1-1 exited 1 (crash)" in shown


def test_a_stack_without_jobs_says_how_to_submit_one_to_each_queue() -> None:
    shown = without_jobs(COMMANDS, {"product": "products", "research": "research"})
    check("closing-without-jobs", text(shown, 80, soft_wrap=True))


def test_commands_to_copy_are_never_wrapped() -> None:
    shown = text(completed(COMPLETED, "gs://checkpoints/tiny", COMMANDS), 30, soft_wrap=True)

    assert f"  {COMMANDS.kubectl_command('research', 'get jobset,pods')}\n" in shown
    assert f"  {COMMANDS.about.down()}\n" in shown

import io
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pulumi.automation import CommandError
from pulumi.automation._cmd import CommandResult
from rich.console import Console

from cli import phases
from cli.answer import INTERRUPTED, Halt
from cli.phases import Display
from cli.progress import UP_PHASES, Phase, Progress
from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from sandbox.site import create
from tests.cli import recordings
from tests.cli.shown import read_output


@pytest.fixture
def display() -> Display:
    return Display(Console(file=io.StringIO()), Progress("test", UP_PHASES))


def test_a_taken_port_is_named_and_nothing_is_started(tmp_path: Path, display: Display) -> None:
    site = create(tmp_path)
    with socket.create_server((site.address, site.api_server_port)), pytest.raises(SandboxError, match=r"6443"):
        phases.start_control_plane(display, site)

    assert display.progress.spans[Phase.CONTROL_PLANE].failed
    assert not site.daemon_pid.exists()


def test_without_go_and_programs_the_message_says_how_to_get_them(
    tmp_path: Path, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(ProgramsError, match=r"needs Go"):
        phases.prepare_programs(display)

    assert "programs: failed in" in read_output(display.console)


def test_a_refused_plan_ends_with_pulumi_s_errors_and_the_advice(display: Display) -> None:
    def refuse(on_event: Callable[[Any], None]) -> None:
        on_event(recordings.error_event("error: quota exceeded"))
        raise CommandError(CommandResult(stdout="", stderr="", code=255))

    with pytest.raises(Halt, match=r"(?s)plan failed:\n  error: quota exceeded\nRepair it"):
        phases.operate(display, Phase.PLAN, refuse, "Repair it")

    assert "plan: failed in" in read_output(display.console)


def test_ctrl_c_waits_until_pulumi_has_finished_what_is_in_progress(display: Display) -> None:
    finished = threading.Event()

    def slow(_: Callable[[Any], None]) -> None:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        finished.set()

    with pytest.raises(Halt, match=r"cancelled") as caught:
        phases.operate(display, Phase.INFRASTRUCTURE, slow, "")

    assert finished.is_set()
    assert caught.value.exit_status == INTERRUPTED
    assert "infrastructure: cancelling" in read_output(display.console)


class _Unable:
    def recover(self) -> str | None:
        raise CommandError(CommandResult(stdout="", stderr="error: snapshot integrity failure", code=255))


def test_a_stack_that_cannot_be_taken_up_again_is_reported_with_what_to_do(display: Display) -> None:
    with pytest.raises(Halt, match=r"(?s)snapshot integrity failure.*--delete-checkpoints"):
        phases.recover(display, cast(Any, _Unable()))

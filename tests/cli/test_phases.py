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
from cli.sandbox_folder import StackOfSandbox
from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from sandbox.servers import holds_within
from sandbox.site import create
from tests.cli import recordings
from tests.cli.shown import read_output
from tests.sandbox.node_agent.pods import runs


@pytest.fixture
def display() -> Display:
    return Display(Console(file=io.StringIO()), Progress("test", UP_PHASES), StackOfSandbox("test", Path("/sandbox")))


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

    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(ProgramsError, match=r"needs Go"), phases.prepare_programs(display) as preparation:
        preparation.engine()

    assert "programs: failed in" in read_output(display.console)


def with_fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An empty cache, and a Go that runs the script to build; `$out` is the program."""
    for name in ("path", "module/charts/jobset", "module/charts/kueue", "module/charts/operator/crds"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "module" / "config" / "crd").mkdir(parents=True)
    download = f"""[ "$1" = mod ] && {{ printf '{{"Dir": "{folder}/module"}}'; exit 0; }}"""
    output = 'while [ "$1" != -o ]; do shift; done; out=$2'
    go = folder / "path" / "go"
    go.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{download}\n{output}\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "path"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def test_the_engine_is_ready_while_the_cluster_is_still_being_built(
    tmp_path: Path, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = f'case "$out" in *etcd*) while [ ! -e {tmp_path}/planned ]; do sleep 0.1; done;; esac'
    with_fake_go(tmp_path, monkeypatch, f"{hold}\necho program > $out")

    with phases.prepare_programs(display) as preparation:
        engine = preparation.engine()
        assert engine.path("pulumi").is_file()
        with pytest.raises(ProgramsError, match="not built yet: kubectl"):
            engine.path("kubectl")
        (tmp_path / "planned").touch()
        assert preparation.all().path("kubectl").is_file()

    shown = read_output(display.console)
    assert "programs: 1 of 10: building pulumi" in shown
    assert "programs: 10 ready\n" in shown


def test_what_ends_a_plan_ends_the_build_too(tmp_path: Path, display: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = f'case "$out" in *etcd*) echo $$ > {tmp_path}/pid; exec sleep 60;; esac'
    with_fake_go(tmp_path, monkeypatch, f"{hold}\necho program > $out")

    def cancel() -> None:
        with phases.prepare_programs(display) as preparation:
            preparation.engine()
            assert holds_within(10, (tmp_path / "pid").exists)
            raise Halt("cancelled")

    with pytest.raises(Halt, match="cancelled"):
        cancel()
    assert not runs(int((tmp_path / "pid").read_text()))
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
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
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
    with pytest.raises(
        Halt, match=r"(?s)snapshot integrity failure.*multislice down -s test --sandbox /sandbox --delete-checkpoints"
    ):
        phases.recover(display, cast(Any, _Unable()))

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import INTERRUPTED, UNREAD, Halt, exit_status, write_short
from cli.sandbox_folder import lock_sandbox
from infra.cluster.stacks import StacksError
from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from sandbox.site import Site

LINE = "look: multislice status tiny -s local --engine sandbox --sandbox a/folder/with/a/name/longer/than/a/line"


def read_output(answer: dict[str, object] | None) -> str:
    file = io.StringIO()
    write_short(answer, "job tiny", "cancelled", [LINE], Console(file=file, width=30))
    return file.getvalue()


def test_a_command_to_copy_stays_on_one_line_however_narrow_the_terminal() -> None:
    assert read_output(None) == f"job tiny  cancelled\n{LINE}\n"


def test_a_second_command_is_refused_with_the_name_and_pid_of_the_first(tmp_path: Path) -> None:
    site, first = Site(tmp_path, 64), rf"`preview` \(pid {os.getpid()}\)"

    with lock_sandbox(site, "preview"), pytest.raises(Halt, match=first), lock_sandbox(site, "up"):
        pass


def test_the_sandbox_is_free_again_after_a_command_that_failed(tmp_path: Path) -> None:
    site = Site(tmp_path, 64)
    with pytest.raises(ZeroDivisionError), lock_sandbox(site, "up"):
        _ = 1 // 0

    with lock_sandbox(site, "down"):
        assert str(os.getpid()) in (tmp_path / "command.txt").read_text()
    assert not (tmp_path / "command.txt").exists()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (Halt("why"), 1, "why\n"),
        (Halt("cancelled", INTERRUPTED), 130, "cancelled\n"),
        (SandboxError("port"), 1, "port\n"),
        (ProgramsError("Go"), 1, "Go\n"),
        (StacksError("no stack"), 1, "no stack\n"),
        (Halt("event: \x1b[2J"), 1, "event: \N{SYMBOL FOR ESCAPE}[2J\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_what_ends_a_command_is_a_message_and_a_status(
    error: BaseException, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert exit_status(fail) == status
    assert capsys.readouterr().err == message


def test_an_unexpected_error_keeps_its_traceback() -> None:
    def fail() -> int:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        exit_status(fail)


@pytest.mark.parametrize(
    "writes", ["sys.stdout.write('line' * 100_000)", "Console().print('line\\n' * 5000)", "print('short')"]
)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(writes: str) -> None:
    program = (
        f"import sys; from rich.console import Console; from cli.answer import exit_status;"
        f" sys.stdin.read(); sys.exit(exit_status(lambda: {writes} and 0 or 0))"
    )
    command = [sys.executable, "-c", program]
    ours, pipe = os.pipe()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=pipe, stderr=subprocess.PIPE) as ended:
        os.close(ours)
        os.close(pipe)
        assert ended.communicate() == (None, b"")
    assert ended.returncode == UNREAD

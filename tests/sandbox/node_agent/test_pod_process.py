import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sandbox.node_agent.environment import Mount
from sandbox.node_agent.pod_process import (
    FOLDER_VARIABLE,
    Plan,
    PodProcess,
    StartError,
    end_leftovers,
    start_reaper,
)
from sandbox.servers import holds_within
from tests.checkout import ROOT
from tests.sandbox.node_agent.pods import runs


def plan(folder: Path, *command: str, mounts: tuple[Mount, ...] = ()) -> Plan:
    (folder / "stage").mkdir(exist_ok=True)
    (folder / "hosts").write_text("127.201.9.9\tmy-pod localhost\n127.201.9.10\tpeer.train\n")
    return Plan(
        command=list(command),
        environment={"PATH": "/usr/bin:/bin", FOLDER_VARIABLE: str(folder)},
        hostname="my-pod",
        workdir=folder,
        mounts=[Mount(folder / "hosts", "/etc/hosts", read_only=False), *mounts],
        stage=folder / "stage",
        log=folder / "main.log",
        message=folder / "message",
    )


def run(folder: Path, *command: str, mounts: tuple[Mount, ...] = ()) -> tuple[int, str]:
    code = PodProcess.start(plan(folder, *command, mounts=mounts)).wait()
    return code, (folder / "main.log").read_text()


def wait_for_line(path: Path) -> str:
    written = holds_within(10, lambda: path.exists() and path.read_text().endswith("\n"), 0.01)
    assert written, f"nothing was written to {path}"
    return path.read_text().strip()


def ends(pid: int) -> bool:
    return holds_within(5, lambda: not runs(pid), 0.01)


def test_mounts_exist_only_in_the_pod(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "note").write_text("inside\n")
    mounts = (Mount(tmp_path / "volume", "/mnt", read_only=True),)
    code, log = run(tmp_path, "sh", "-c", "cat /mnt/note; touch /mnt/new", mounts=mounts)
    assert code != 0
    assert "inside\n" in log
    assert "Read-only file system" in log
    assert not Path("/mnt/note").exists()


def test_the_environment_is_the_pods_and_nothing_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "1")
    _, log = run(tmp_path, "env")
    names = {line.split("=")[0] for line in log.splitlines()}
    assert names <= {"PATH", FOLDER_VARIABLE, "LC_CTYPE"}


@pytest.mark.parametrize(
    ("command", "source", "message"),
    [
        (("no-such-program",), "stage", "no-such-program: No such file"),
        (("true", "x" * 4_000_000), "stage", "Argument list too long"),
        (("true",), "absent", "/mnt: No such file"),
    ],
    ids=["an absent program", "a command too long for the kernel", "an absent mount"],
)
def test_what_cannot_be_started_is_a_start_error_with_the_reason(
    tmp_path: Path, command: tuple[str, ...], source: str, message: str
) -> None:
    with pytest.raises(StartError, match=message):
        PodProcess.start(plan(tmp_path, *command, mounts=(Mount(tmp_path / source, "/mnt", read_only=False),)))


def mounts_on_new_places(folder: Path) -> tuple[Mount, ...]:
    """A folder and a file, where the machine has neither."""
    (folder / "volume").mkdir()
    (folder / "volume" / "note").write_text("inside\n")
    places = ("/made-for-a-pod/deep", "/also-made-for-a-pod", "/dev/made/note")
    sources = (folder / "volume", folder / "volume", folder / "volume" / "note")
    return tuple(Mount(source, place, read_only=False) for source, place in zip(sources, places, strict=True))


def run_on_new_places(folder: Path) -> tuple[int, str]:
    """Return what a container sees at places that only it has."""
    seen = "cd /made-for-a-pod/deep; cat note /also-made-for-a-pod/note /dev/made/note; echo > new; echo > /dev/null"
    return run(folder, "sh", "-c", seen, mounts=mounts_on_new_places(folder))


def test_a_mount_point_that_the_machine_lacks_exists_only_in_the_container(tmp_path: Path) -> None:
    machine = {folder: sorted(os.listdir(folder)) for folder in ("/", "/dev")}
    assert run_on_new_places(tmp_path) == (0, 3 * "inside\n")
    assert (tmp_path / "volume" / "new").exists()
    assert {folder: sorted(os.listdir(folder)) for folder in machine} == machine


def test_after_its_end_a_container_takes_no_signal_and_no_command_and_leaves_nothing_in_its_group(
    tmp_path: Path,
) -> None:
    container = PodProcess.start(plan(tmp_path, "sh", "-c", "sleep 100 & echo $! > child"))
    container.wait()
    container.signal(signal.SIGKILL)
    with pytest.raises(StartError, match=f"/proc/{container.pid}/ns/"):
        container.run_inside(["true"])
    assert ends(int(wait_for_line(tmp_path / "child")))


def test_a_signal_reaches_the_whole_group(tmp_path: Path) -> None:
    process = PodProcess.start(plan(tmp_path, "sh", "-c", "sleep 100 & echo $! > child; wait"))
    child = int(wait_for_line(tmp_path / "child"))
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    assert ends(child)


def test_leftovers_of_a_folder_end_even_in_a_session_of_their_own(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    pids: list[int] = []
    for folder in (mine, other):
        folder.mkdir()
        leaves = "setsid sh -c 'echo $$ > child; exec sleep 100' & until [ -s child ]; do sleep 0.01; done"
        PodProcess.start(plan(folder, "sh", "-c", leaves)).wait()
        pids.append(int(wait_for_line(folder / "child")))
    end_leftovers(mine)
    assert ends(pids[0])
    assert psutil.pid_exists(pids[1])
    end_leftovers(tmp_path)
    assert ends(pids[1])


def test_the_reaper_ends_leftovers_when_its_parent_is_gone(tmp_path: Path) -> None:
    process = PodProcess.start(plan(tmp_path, "sleep", "100"))
    reaper = start_reaper(tmp_path)
    assert reaper.stdin is not None
    reaper.stdin.close()
    assert process.wait() == -signal.SIGKILL
    assert reaper.wait(10) == 0


def run_beside(folder: Path, *command: str, mounts: tuple[Mount, ...] = ()) -> str:
    """Return the output of a command inside a sleeping container."""
    container = PodProcess.start(plan(folder, "sleep", "600", mounts=mounts))
    with (folder / "said").open("w+") as said:
        container.run_inside(command, said.fileno()).wait()
        container.signal(signal.SIGKILL)
        container.wait()
        said.seek(0)
        return said.read()


def test_a_command_inside_a_container_runs_in_its_namespaces_and_sees_its_new_mount_points(tmp_path: Path) -> None:
    command = ("sh", "-c", "hostname; pwd; cat /made-for-a-pod/deep/note")
    said = run_beside(tmp_path, *command, mounts=mounts_on_new_places(tmp_path))
    assert said == f"my-pod\n{tmp_path}\ninside\n"


_AS_USER = f"{os.geteuid() or 1000}\nmy-pod\n"


@pytest.mark.parametrize(
    ("how", "command", "said"),
    [
        ("run", ("sh", "-c", "id -u; hostname"), (0, _AS_USER)),
        ("run_beside", ("sh", "-c", "id -u; hostname"), _AS_USER),
        ("run_on_new_places", (), (0, 3 * "inside\n")),
    ],
    ids=["container", "command inside", "new mount points"],
)
def test_an_ordinary_user_needs_no_root(tmp_path: Path, how: str, command: tuple[str, ...], said: object) -> None:
    program = (
        f"import sys; from pathlib import Path; from tests.sandbox.node_agent.test_pod_process import {how};"
        f"print({how}(Path(sys.argv[1]), *sys.argv[2:]))"
    )
    user = [] if os.geteuid() else ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    line = [*user, sys.executable, "-c", program, str(tmp_path), *command]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{said}\n"

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import websocket

from infra.remote_command import Channel, NotStarted, RemoteCommand
from sandbox import certificates
from sandbox.node_agent.pod_process import PodProcess
from sandbox.site import Site, create
from tests.sandbox.node_agent.containers import begin, connect, served, sleeping

TERMINAL = {"input": "1", "output": "1", "tty": "1"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = create(tmp_path_factory.mktemp("site"))
    certificates.ensure(made)
    return made


@pytest.fixture(scope="module", autouse=True)
def container(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with sleeping(tmp_path_factory.mktemp("pod")) as process, served(site, process):
        yield process


def said(command: RemoteCommand) -> tuple[int | None, bytes, bytes]:
    """Exit code, output and errors."""
    heard = {Channel.OUTPUT: b"", Channel.ERRORS: b""}
    with command:
        while (message := command.receive(60)) is not None:
            heard[message[0]] += message[1]
    return command.exit_code, heard[Channel.OUTPUT], heard[Channel.ERRORS]


def first_words(command: RemoteCommand) -> bytes:
    while (message := command.receive(60)) is not None:
        if message[1]:
            return message[1]
    return b""


def test_a_command_sees_what_the_container_sees(site: Site) -> None:
    code, output, _ = said(begin(site, "sh", "-c", "hostname; echo $ROLE; cat /etc/hosts"))
    assert (code, output) == (0, b"my-pod\nleader\n127.201.9.9\tmy-pod\n")


def test_a_command_is_in_the_namespaces_of_the_container(site: Site, container: PodProcess) -> None:
    _, output, _ = said(begin(site, "readlink", "/proc/self/ns/mnt", f"/proc/{container.pid}/ns/mnt"))
    own, containers = output.split()
    assert own == containers
    assert own != str(Path("/proc/self/ns/mnt").readlink()).encode()


def test_output_errors_and_exit_code_come_apart(site: Site) -> None:
    assert said(begin(site, "sh", "-c", "echo out; echo err >&2; exit 7")) == (7, b"out\n", b"err\n")


def test_a_command_that_a_signal_ends_has_a_code_of_its_own(site: Site) -> None:
    assert said(begin(site, "sh", "-c", "kill -KILL $$"))[0] == 137


def test_a_megabyte_comes_back_as_it_was_sent_and_the_end_of_the_input_is_told(site: Site) -> None:
    sent = bytes(range(256)) * 4096
    command = begin(site, "cat")
    command.send(sent)
    command.end_input()
    assert said(command) == (0, sent, b"")


def test_a_command_without_input_finds_none(site: Site) -> None:
    assert said(begin(site, "cat", output="1")) == (0, b"", b"")


def test_a_shell_has_a_terminal_of_the_size_that_it_is_told(site: Site) -> None:
    command = begin(site, "sh", "-c", "tty >/dev/null && read go && stty size && echo $TERM", **TERMINAL)
    command.resize(columns=123, lines=45)
    command.send(b"go\n")
    code, output, _ = said(command)
    assert code == 0
    assert output.split() == [b"go", b"45", b"123", b"xterm"]


def test_ctrl_c_in_a_terminal_ends_what_runs_in_it(site: Site) -> None:
    command = begin(site, "sh", "-c", "echo ready; exec sleep 600", **TERMINAL)
    with command:
        assert first_words(command) == b"ready\r\n"
        command.send(b"\x03")
        while command.receive(60) is not None:
            pass
    assert command.exit_code == 130


def test_a_program_that_is_not_there_is_named(site: Site) -> None:
    with pytest.raises(NotStarted, match="no-such-program: No such file"):
        said(begin(site, "no-such-program"))


def test_what_a_command_leaves_in_the_background_does_not_hold_its_connection(site: Site) -> None:
    assert said(begin(site, "sh", "-c", "sleep 600 & echo done")) == (0, b"done\n", b"")


def test_a_command_ends_with_its_connection(site: Site) -> None:
    with begin(site, "sh", "-c", "echo $$; exec sleep 600") as command:
        process = psutil.Process(int(first_words(command)))
    process.wait(60)
    assert not process.is_running()


def test_the_version_before_is_spoken_too(site: Site) -> None:
    connection = connect(site, "true", protocol="v4.channel.k8s.io", output="1")
    assert connection.subprotocol == "v4.channel.k8s.io"
    messages = [connection.recv(), connection.recv()]
    assert messages[0] == bytes([Channel.OUTPUT])
    assert isinstance(messages[1], bytes)
    assert json.loads(messages[1][1:])["status"] == "Success"


@pytest.mark.parametrize(
    ("protocol", "command", "status"), [("channel.k8s.io", ("true",), 400), ("v5.channel.k8s.io", (), 400)]
)
def test_what_cannot_be_served_is_refused_before_anything_runs(
    site: Site, protocol: str, command: tuple[str, ...], status: int
) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        connect(site, *command, protocol=protocol, output="1")
    assert refused.value.status_code == status

import socket
from collections.abc import Generator
from dataclasses import replace

import pytest

from infra.kubernetes import ApiError, ApiServer
from infra.remote_command import Channel, Container, Ended, NotStarted, RemoteCommand, exit_code, run
from tests.infra.exec_server import CONTAINER, POD, exec_server

HERE = Container("team", POD, CONTAINER)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Generator[ApiServer]:
    with exec_server(tmp_path_factory.mktemp("site")) as served:
        yield served


def test_what_a_command_says_comes_back_with_its_exit_code(api: ApiServer) -> None:
    ended = run(api, HERE, ["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_seconds=60)
    assert ended == Ended(3, b"out\n", b"err\n")


def test_a_command_reads_what_it_is_given_to_the_end(api: ApiServer) -> None:
    sent = bytes(range(256)) * 1024
    assert run(api, HERE, ["cat"], stdin=sent, timeout_seconds=60) == Ended(0, sent, b"")


def test_words_reach_the_command_as_they_are(api: ApiServer) -> None:
    words = ["a b", "&c=d", "é", ""]
    assert run(api, HERE, ["printf", "%s|", *words], timeout_seconds=60).output.decode() == "a b|&c=d|é||"


def test_a_command_that_does_not_end_in_time_is_given_up(api: ApiServer) -> None:
    with pytest.raises(TimeoutError):
        run(api, HERE, ["sleep", "600"], timeout_seconds=0.2)


def test_a_program_that_is_not_there_is_told_in_the_nodes_words(api: ApiServer) -> None:
    with pytest.raises(NotStarted, match="no-such-program"):
        run(api, HERE, ["no-such-program"], timeout_seconds=60)


def test_a_terminal_has_the_size_that_it_is_told(api: ApiServer) -> None:
    shell = ["sh", "-c", "read go; stty size"]
    with RemoteCommand.start(api, HERE, shell, stdin=True, terminal=True) as remote:
        remote.resize(columns=123, lines=45)
        remote.send(b"go\n")
        heard = b""
        while (said := remote.receive(60)) is not None:
            assert said[0] is Channel.OUTPUT
            heard += said[1]
    assert b"45 123" in heard
    assert remote.exit_code == 0


def test_that_a_command_has_begun_is_told_before_it_says_anything(api: ApiServer) -> None:
    with RemoteCommand.start(api, HERE, ["cat"], stdin=True, terminal=False) as remote:
        assert remote.receive(60) == (Channel.OUTPUT, b"")
        remote.send(b"word")
        assert remote.receive(60) == (Channel.OUTPUT, b"word")


def test_a_sign_of_life_is_answered_and_nothing_waits_for_more(api: ApiServer) -> None:
    with RemoteCommand.start(api, HERE, ["cat"], stdin=True, terminal=False) as remote:
        assert remote.receive(60) == (Channel.OUTPUT, b"")
        remote.ping()
        assert remote.receive(60) == (Channel.OUTPUT, b"")
        remote.send(b"word")
        assert remote.receive(60) == (Channel.OUTPUT, b"word")


def test_a_connection_that_broke_is_not_taken_for_a_reader_that_has_gone(api: ApiServer) -> None:
    with RemoteCommand.start(api, HERE, ["cat"], stdin=True, terminal=False) as remote:
        socket.socket(fileno=socket.dup(remote.fileno())).shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match="the connection to the command broke") as broken:
            remote.send(b"word" * 99_999)
    assert not isinstance(broken.value, BrokenPipeError)


@pytest.mark.parametrize(
    ("changed", "status", "says"), [({"pod": "train-9"}, 404, "train-9"), ({"name": "other"}, 404, "other")]
)
def test_a_container_that_is_not_there_is_refused_with_the_reason(
    api: ApiServer, changed: dict[str, str], status: int, says: str
) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        run(api, replace(HERE, **changed), ["true"], timeout_seconds=60)
    assert refused.value.status == status


def test_who_has_no_right_to_it_is_told_so(api: ApiServer) -> None:
    stranger = replace(api, credentials=lambda: {"Authorization": "Bearer wrong"})
    with pytest.raises(ApiError, match="forbidden") as refused:
        run(stranger, HERE, ["true"], timeout_seconds=60)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


def test_a_server_that_is_away_is_an_operating_systems_error(api: ApiServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.247.9.9", 0))
        away = replace(api, url=f"https://127.247.9.9:{unused.getsockname()[1]}")
        with pytest.raises(OSError, match="refused"):
            run(away, HERE, ["true"], timeout_seconds=60)


@pytest.mark.parametrize("proxy", ["https_proxy", "HTTPS_PROXY"])
def test_no_proxy_of_the_environment_comes_between(api: ApiServer, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    assert run(api, HERE, ["true"], timeout_seconds=60).exit_code == 0


def test_a_last_word_without_a_number_says_that_nothing_ran() -> None:
    assert exit_code({"status": "Success"}) == 0
    with pytest.raises(NotStarted, match="the node gave no reason"):
        exit_code({"status": "Failure"})

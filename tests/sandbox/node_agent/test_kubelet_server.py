import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import certificates
from sandbox.node_agent.container import log_file
from sandbox.node_agent.kubelet_server import KubeletServer, LogTimes, Wanted, log_blocks
from sandbox.site import Site, create


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = create(tmp_path_factory.mktemp("site"))
    certificates.ensure(made)
    log = log_file(made, "team_train-0_uid", "jax")
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    return made


@pytest.fixture(scope="module", autouse=True)
def server(site: Site) -> Iterator[KubeletServer]:
    made = KubeletServer(site, lambda *_: False, LogTimes(site.logs / "pods"))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def get(site: Site, path: str, client: str | None = "apiserver-kubelet-client") -> str:
    context = ssl.create_default_context(cafile=str(site.pki / "ca.crt"))
    if client is not None:
        context.load_cert_chain(site.pki / f"{client}.crt", site.pki / f"{client}.key")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(f"https://{site.address}:{site.kubelet_port}{path}", timeout=60) as response:
        return response.read().decode()


def test_a_client_without_certificate_is_refused(site: Site) -> None:
    with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
        get(site, "/containerLogs/team/train-0/jax", client=None)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/containerLogs/team/train-0/other", 404),
        ("/containerLogs/team/train-0/jax?previous=true", 404),
        ("/exec/team/train-0/jax", 501),
        ("/attach/team/train-0/jax", 501),
        ("/containerLogs/team/..%2F..%2Fpki/ca", 501),
    ],
)
def test_anything_else_is_refused_with_a_sentence(site: Site, path: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(site, path)
    assert raised.value.code == status
    assert raised.value.read().decode()


def test_a_log_is_read_from_a_moment_on_and_with_the_time_of_each_line(site: Site) -> None:
    stamped = get(site, "/containerLogs/team/train-0/jax?timestamps=true").splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["one", "two", "three"]
    stamps = [line.partition(" ")[0] for line in stamped]
    assert stamps == sorted(set(stamps))
    assert get(site, "/containerLogs/team/train-0/jax?sinceTime=2020-01-01T00:00:00Z") == "one\ntwo\nthree\n"
    assert get(site, "/containerLogs/team/train-0/jax?sinceTime=2100-01-01T00:00:00Z") == ""


def test_lines_keep_their_times_however_often_and_from_wherever_they_are_read(tmp_path: Path) -> None:
    log, times = tmp_path / "log", LogTimes(tmp_path)
    log.write_text("one\n")
    times.look(log)
    with log.open("a") as file:
        file.write("two\nthree\nfour\nfi")
    whole = b"".join(log_blocks(log, times, Wanted(timestamps=True), lambda: False)).splitlines()
    assert [line.partition(b" ")[2] for line in whole] == [b"one", b"two", b"three", b"four", b"fi"]
    with log.open("a") as file:
        file.write("ve\n")
    again = b"".join(log_blocks(log, times, Wanted(tail_lines=2, timestamps=True), lambda: False)).splitlines()
    assert again[0] == whole[3]
    assert again[1].endswith(b" five")


def test_following_gives_whole_lines_as_they_are_written_and_the_rest_when_the_container_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\nha")
    runs = iter([True, True, False])
    blocks = log_blocks(log, LogTimes(tmp_path), Wanted(), lambda: next(runs))
    assert next(blocks) == b"old\n"
    with log.open("a") as file:
        file.write("lf\nend")
    assert b"".join(blocks) == b"half\nend"

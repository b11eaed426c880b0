import hashlib
import io
import tarfile
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import override

import pytest

from cli.answer import Halt
from cli.ci.plugins import Plugin, install, lock, own_platform, plugins
from sandbox import builds
from tests.chain.stack import ignore
from tests.cli.api_server import serving

PLUGIN = Plugin("example", "1.2.3")


class _Quiet(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir()
    return folder


@pytest.fixture
def server(archives: Path) -> Generator[str]:
    """An address from which the archives can be downloaded."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(archives)))) as served:
        yield f"http://127.0.0.1:{served.server_port}"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the real `pulumi` puts plugins."""
    monkeypatch.setenv("PATH", str(builds.prepare(ignore).path("pulumi").parent), prepend=":")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "plugins"


def _publish(folder: Path, program: str) -> None:
    for platform in ("darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"):
        with tarfile.open(folder / PLUGIN.archive(platform), "w:gz") as archive:
            entry = tarfile.TarInfo("pulumi-resource-example")
            entry.size, entry.mode = len(program), 0o755
            archive.addfile(entry, io.BytesIO(program.encode()))


def test_a_locked_plugin_is_installed(archives: Path, server: str, installed: Path, tmp_path: Path) -> None:
    _publish(archives, "good")
    lock(tmp_path / "lock", server, [PLUGIN])
    install(tmp_path / "lock", server, [PLUGIN], own_platform())
    assert (installed / "resource-example-v1.2.3" / "pulumi-resource-example").read_text() == "good"


def test_an_archive_that_was_replaced_is_refused(archives: Path, server: str, installed: Path, tmp_path: Path) -> None:
    _publish(archives, "good")
    lock(tmp_path / "lock", server, [PLUGIN])
    _publish(archives, "evil")
    with pytest.raises(Halt, match="has the checksum .* do not run it"):
        install(tmp_path / "lock", server, [PLUGIN], own_platform())
    assert not (installed / "resource-example-v1.2.3" / "pulumi-resource-example").exists()


def test_plugins_without_a_checksum_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(Halt) as refused:
        install(tmp_path / "lock", "http://127.0.0.1:1", plugins(), "linux-amd64")
    for plugin in plugins():
        assert plugin.archive("linux-amd64") in str(refused.value)
    assert "make lock-plugins" in str(refused.value)


def test_a_lock_that_cannot_be_written_whole_is_not_written(archives: Path, server: str, tmp_path: Path) -> None:
    _publish(archives, "good")
    lock(tmp_path / "lock", server, [PLUGIN])
    before = (tmp_path / "lock").read_text()
    assert hashlib.sha256((archives / PLUGIN.archive("linux-arm64")).read_bytes()).hexdigest() in before
    (archives / PLUGIN.archive("linux-arm64")).unlink()
    with pytest.raises(Halt, match="nothing was changed"):
        lock(tmp_path / "lock", server, [PLUGIN])
    assert (tmp_path / "lock").read_text() == before

"""Installs the Pulumi plugins that use a stack's credentials, after checking the checksums of their archives.

The versions are those of the SDKs in the Python lock file. The checksums are in `requirements/plugins.json`, which
`make lock-plugins` writes, because Pulumi publishes no checksums to compare with.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from cli.answer import Halt

SERVER = "https://get.pulumi.com/releases/plugins"
_SDKS = ("pulumi_docker_build", "pulumi_gcp", "pulumi_kubernetes")
_PATIENCE_SECONDS = 60
_PLATFORMS = ("darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Plugin:
    """A resource plugin, in the version that its SDK needs."""

    name: str
    version: str

    def archive(self, of: str) -> str:
        return f"pulumi-resource-{self.name}-v{self.version}-{of}.tar.gz"


def plugins() -> list[Plugin]:
    """Return the plugins of the installed SDKs."""
    described = [json.loads(resources.files(sdk).joinpath("pulumi-plugin.json").read_text()) for sdk in _SDKS]
    return [Plugin(each["name"], each["version"]) for each in described]


def own_platform() -> str:
    """Return the operating system and architecture of this machine in Pulumi's notation."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{_ARCHITECTURES.get(machine, machine)}"


def lock(file: Path, server: str, wanted: Sequence[Plugin]) -> None:
    """Download every plugin for every platform and write the SHA-256 checksums of the archives to `file`, by name."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "archive"
        for name in (plugin.archive(each) for plugin in wanted for each in _PLATFORMS):
            _download(server, name, archive)
            found[name] = _checksum(archive)
    file.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


def install(file: Path, server: str, wanted: Sequence[Plugin], of: str) -> None:
    """Install the plugins for `of`, the platform of this machine. Raise Halt unless `file` has their checksums."""
    known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    missing = [plugin.archive(of) for plugin in wanted if plugin.archive(of) not in known]
    if missing:
        raise Halt(
            f"{file} has no checksum of {', '.join(missing)}; run `make lock-plugins` on a machine that you trust,"
            " and commit the result"
        )
    with tempfile.TemporaryDirectory() as scratch:
        for plugin in wanted:
            name = plugin.archive(of)
            archive = Path(scratch) / name
            _download(server, name, archive)
            found = _checksum(archive)
            if found != known[name]:
                raise Halt(
                    f"{server}/{name} has the checksum {found}, expected {known[name]} ({file});"
                    " do not run it, and find out why the archive has changed"
                )
            # Not with --checksum: over HTTP/1.1, Pulumi 3.259 omits the last part of an archive from it.
            named = ["resource", plugin.name, f"v{plugin.version}", "--file", str(archive), "--reinstall"]
            done = subprocess.run(["pulumi", "plugin", "install", *named], capture_output=True, text=True, check=False)
            if done.returncode:
                raise Halt(f"pulumi plugin install {plugin.name} {plugin.version}: {done.stderr.strip()}")


def _download(server: str, name: str, path: Path) -> None:
    try:
        with urllib.request.urlopen(f"{server}/{name}", timeout=_PATIENCE_SECONDS) as archive, path.open("wb") as file:
            shutil.copyfileobj(archive, file)
    except OSError as error:
        raise Halt(f"{server}/{name}: {error}; nothing was changed, run the command again") from None


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

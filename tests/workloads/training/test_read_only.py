"""The trainer on a file system with only one writable folder, as in its pods."""

import os
from pathlib import Path

import pytest

from tests.workloads.hosts import attempt, first_code
from tests.workloads.jobs import small_job

SEALED = """
import ctypes, os
CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result:
        raise OSError(ctypes.get_errno(), "the file system could not be made read-only")
def set_attributes(path, flags, added, removed):
    attributes = (ctypes.c_uint64 * 4)(added, removed, 0, 0)
    done(libc.syscall(MOUNT_SETATTR, AT_FDCWD, path, flags, attributes, ctypes.sizeof(attributes)))
done(libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if os.geteuid() else 0)))
done(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
writable = [os.fsencode(os.environ[name]) for name in ("TMPDIR", "SEALED_BUCKET")]
for path in writable:
    done(libc.mount(path, path, None, ctypes.c_ulong(MS_BIND), None))
set_attributes(b"/", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0)
for path in writable:
    set_attributes(path, 0, 0, MOUNT_ATTR_RDONLY)
try:
    open(os.path.join(os.environ["HOME"], "written"), "w")
except OSError as refused:
    print("sealed:", refused.strerror, flush=True)
"""
"""Code that runs in the process before its own, as Python's `sitecustomize`. mount_setattr(2) needs Linux 5.12."""


@pytest.mark.complete
def test_it_trains_saves_and_profiles_where_nothing_but_its_temporary_folder_can_be_written(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("tmp", "bucket", "home")}
    for place in places.values():
        place.mkdir()
    environment = first_code(tmp_path / "sealed", SEALED) | {
        "TMPDIR": str(places["tmp"]),
        "SEALED_BUCKET": str(places["bucket"]),
        "HOME": str(places["home"]),
        "JAX_COMPILATION_CACHE_DIR": str(places["tmp"] / "jax"),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
    }
    job = small_job(places["bucket"], replica=1, fsdp=2, steps=4, save_every_steps=2, profile_steps=(2, 3))
    ended = attempt(job, 0, tmp_path / "logs", environment)
    assert ended.codes == [0]
    assert [line for line in ended.lines if "Read-only file system" in line] == ["sealed: Read-only file system"]
    run = places["bucket"] / "runs" / "run-1"
    assert {path.name for path in (run / "checkpoints").iterdir()} >= {"4"}
    assert os.listdir(places["tmp"] / "jax")
    assert os.listdir(places["home"]) == []

"""The last steps inside a container's process, before its program replaces this one.

A bare interpreter runs this as a script (`python -I -S launch.py PLAN COMMAND...`), so it imports only modules that
load in milliseconds. It enters its own mount and UTS namespaces, mounts the pod's files, sets the pod's host name and
executes the command. Alternatively it enters the namespaces of the process that the command should run `inside`. The
descriptor `report` in PLAN closes when the command starts. An earlier error is written to it.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

FAULT_EXIT_CODE = 128

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1
NICE = 10
"""Nice value of programs in containers, which use every core. In a cluster the API server, the controllers and the
engine have their own cores. Here they take precedence."""


def main() -> None:
    """Follow the plan in the first argument, then become the command in the others."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    command = sys.argv[2:]
    os.set_inheritable(plan["report"], False)
    try:
        if "inside" in plan:
            # All are opened first, because this process loses its permissions when it enters the user namespace.
            kinds = ["user", "mnt", "uts"] if os.geteuid() != 0 else ["mnt", "uts"]
            for namespace in [os.open(f"/proc/{plan['inside']}/ns/{kind}", os.O_RDONLY) for kind in kinds]:
                os.setns(namespace)
        else:
            _enter_namespaces()
            for source, target, read_only in plan["mounts"]:
                if not os.path.exists(target):
                    _make_place(target, plan["stage"], is_folder=os.path.isdir(source))
                _mount(source, target, _MS_BIND | _MS_REC)
                if read_only:
                    _mount(None, target, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
            socket.sethostname(plan["hostname"])
            os.nice(NICE)
            # Between sessions, and this process is one, Linux may divide cores by this value only (sched(7),
            # "autogroup").
            with suppress(OSError):
                _write("/proc/self/autogroup", str(NICE))
            os.makedirs(plan["folder"], exist_ok=True)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(plan["folder"])
        os.execvp(command[0], command)
    except OSError as error:
        subject = error.filename or command[0]
        os.write(plan["report"], f"{subject}: {error.strerror}".encode())
        sys.exit(FAULT_EXIT_CODE)


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    flags = os.CLONE_NEWNS | os.CLONE_NEWUTS
    if user != 0:
        flags |= os.CLONE_NEWUSER
    try:
        os.unshare(flags)
        if user != 0:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        # Or the bind mounts below would appear on the whole machine.
        _mount(None, "/", _MS_REC | _MS_PRIVATE)
    except OSError as error:
        reason = f"{error.strerror}; run the sandbox as root or allow unprivileged user namespaces"
        raise OSError(error.errno, reason, "private mount and UTS namespaces") from error


def _make_place(target: str, stage: str, *, is_folder: bool) -> None:
    """Make a mount point that the machine lacks, seen only in this namespace.

    The nearest folder above it that exists is replaced by a tmpfs in which its entries are mounted.
    """
    folder = os.path.dirname(target)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    _mount("tmpfs", stage, 0, "tmpfs")
    for entry in os.scandir(folder):
        _mirror(entry, os.path.join(stage, entry.name))
    place = os.path.join(stage, os.path.relpath(target, folder))
    os.makedirs(place if is_folder else os.path.dirname(place), exist_ok=True)
    if not is_folder:
        _write(place, "")
    os.chmod(stage, os.stat(folder).st_mode & 0o7777)
    os.chdir(stage)
    _mount(".", folder, _MS_MOVE)
    if folder == "/":
        os.chroot(".")


def _mirror(entry: "os.DirEntry[str]", place: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), place)
        return
    if entry.is_dir():
        os.mkdir(place)
    else:
        _write(place, "")
    # Entries that end meanwhile are left out.
    with suppress(OSError):
        _mount(entry.path, place, _MS_BIND | _MS_REC)


def _mount(source: str | None, target: str, flags: int, kind: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = [name and os.fsencode(name) for name in (source, target, kind)]
    if libc.mount(*names, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()

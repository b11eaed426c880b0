"""`python -m workloads.training.profile_request` in a host's container: asks its trainer for a profile.

Owns which process is asked: the one trainer that sees the same files, wherever processes are numbered together, and
only if it listens, since SIGUSR1 would end one that does not yet. What it then does is the business of `profile`.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_TRAINER = [b"-m", b"workloads.training"]


class NotAsked(Exception):
    """Nobody was asked; the message says why."""


def main() -> None:
    """Ask; the exit code is 0 if somebody was."""
    try:
        request(Path("/proc"))
    except NotAsked as fault:
        print(fault, file=sys.stderr)
        sys.exit(1)


def request(processes: Path) -> None:
    """Ask the trainer among the processes of that folder, which is laid out as /proc.

    Raises:
        NotAsked: there is none, there are several, or it does not listen yet.
    """
    found = list(_trainers(processes))
    if len(found) != 1:
        raise NotAsked(f"expected one trainer in this container, got {len(found)}; ask a host that trains")
    if not _listens(found[0]):
        raise NotAsked("the trainer of this host does not train yet; ask again when it has printed a step")
    os.kill(int(found[0].name), signal.SIGUSR1)


def _trainers(processes: Path) -> Iterator[Path]:
    here = (processes / "self" / "ns" / "mnt").readlink()
    for process in processes.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            if words[1:3] == _TRAINER and len(words) == 3 and (process / "ns" / "mnt").readlink() == here:
                yield process
        except OSError:
            # Of another user, or gone meanwhile: none that could be asked.
            continue


def _listens(process: Path) -> bool:
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    return bool(int(status["SigCgt"], 16) >> (signal.SIGUSR1 - 1) & 1)


if __name__ == "__main__":
    main()

"""`multislice down` in the sandbox destroys the stack, stops every process, keeps the checkpoints and prints their
folders.

It works from any state, because it starts the servers for the destroy if they have stopped. `--delete-checkpoints`
removes the whole sandbox.
"""

import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.phases import Display, operate, phase, recover, start_control_plane
from cli.progress import DOWN_PHASES, Phase, Progress
from cli.sandbox_folder import StackOfSandbox, lock_sandbox
from infra.stack.names import NO_FOREIGN, NO_JOB_RUNS
from sandbox import daemon, programs
from sandbox.site import Site, load


@dataclass(frozen=True)
class Bucket:
    """A bucket of the local object storage that is not empty."""

    name: str
    folder: Path
    size_bytes: int

    def line(self) -> str:
        return f"gs://{self.name}  {self.size_bytes / 2**20:.1f} MiB  {self.folder}"


@dataclass(frozen=True)
class Consent:
    """What the user allows to be deleted."""

    delete_checkpoints: bool = False
    without_asking: bool = False
    stop_jobs: bool = False
    foreign_objects: bool = False
    """Whether to delete queues, flavors and namespaces that the stack did not create."""

    @property
    def policies(self) -> list[str]:
        """Names of the policies that should only warn."""
        return [NO_JOB_RUNS] * self.stop_jobs + list(NO_FOREIGN) * self.foreign_objects


def down(settings: Path, root: Path, consent: Consent, console: Console) -> int:
    """Destroy the stack of the file `settings`. Return the exit status."""
    if not (root / "site.json").exists():
        _say(console, f"nothing to take down: {root} has no sandbox")
        return 0
    site = load(root)
    if consent.delete_checkpoints and not consent.without_asking:
        _require_confirmation(buckets(site), console)
    with lock_sandbox(site, "down"):
        about = StackOfSandbox(stack_file.stack_name(settings), root)
        progress = Progress(f"tpu-multislice · {about.stack}", DOWN_PHASES)
        removed = _remove(site, settings, Display(console, progress, about), consent)
        left = buckets(site)
        if consent.delete_checkpoints:
            shutil.rmtree(site.root)
    fate = "deleted" if consent.delete_checkpoints else "kept"
    lines = [f"{fate}: {bucket.line()}" for bucket in left]
    if not removed and not consent.delete_checkpoints:
        lines = ["; ".join([f"nothing to take down: the sandbox in {root} is down already", *lines])]
    _say(console, "\n".join(lines))
    return 0


def buckets(site: Site) -> list[Bucket]:
    """Return the buckets that have files, sorted by name."""
    found: list[Bucket] = []
    for folder in sorted(folder for folder in site.buckets.glob("*") if folder.is_dir()):
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        found += [Bucket(folder.name, folder, size)] * bool(size)
    return found


def _require_confirmation(found: list[Bucket], console: Console) -> None:
    listed = "".join(f"\n  {bucket.line()}" for bucket in found) or "\n  (no checkpoints)"
    if not sys.stdin.isatty():
        raise Halt(f"this would permanently delete:{listed}\nNothing was deleted. Add --yes to confirm")
    _say(console, f"This permanently deletes:{listed}")
    if input("Delete? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Halt("nothing was deleted")


def _remove(site: Site, settings: Path, display: Display, consent: Consent) -> bool:
    """Destroy the stack and stop the sandbox. Return False if there was nothing to do."""
    # The Automation API takes a second to import.
    from sandbox.engine import Engine

    engine = Engine(site, programs.found(programs.ENGINE), settings)
    destroyable = engine.destroyable()
    if not destroyable and daemon.running(site) is None:
        return False
    with display.shown():
        if destroyable:
            start_control_plane(display, site)
            recover(display, engine)
            advice = _destroy_advice(display.about)
            operate(display, Phase.DESTROY, partial(engine.destroy, agreed=consent.policies), advice)
        with phase(display, Phase.STOP):
            daemon.stop(site)
    return True


def _destroy_advice(about: StackOfSandbox) -> str:
    return (
        f"The sandbox is still running. Fix the cause and run `{about.down()}` again. `{about.down('--stop-jobs')}`"
        f" stops running jobs, which the next `{about.up()}` resumes; `{about.down('--foreign-objects')}` also deletes"
        " queues and namespaces that the stack did not create"
    )


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)

"""`make down`: remove the stack, stop every process, keep the checkpoints and say where they are.

Works from any state: when the servers are dead but the stack is not, they are started for the
destroy. With `--delete-checkpoints` nothing of the sandbox is left.
"""

import argparse
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.halt import Halt, changing, exit_status
from cli.phases import operate, phase, recover, start_control_plane
from cli.sandbox_folder import SANDBOX
from cli.view.display import Display
from cli.view.snapshot import DOWN_PHASES, Phase, Snapshot
from infra.names import NO_FOREIGN, NO_JOB_RUNS
from sandbox import daemon, programs
from sandbox.site import Site, load
from workloads.terminal import Terminal

_DESTROY_ADVICE = (
    "The sandbox is still running. Fix the cause and run `make down` again. `make down ARGS=--stop-jobs` stops running"
    " jobs, which the next `make up` resumes; `make down ARGS=--foreign-objects` also"
    " deletes queues and namespaces that the stack did not make"
)


@dataclass(frozen=True)
class Bucket:
    """A bucket of the local object storage that holds something."""

    name: str
    folder: Path
    size_bytes: int

    def line(self) -> str:
        """Name, size and folder."""
        return f"gs://{self.name}  {self.size_bytes / 2**20:.1f} MiB  {self.folder}"


@dataclass(frozen=True)
class Consent:
    """What the user agreed to lose."""

    delete_checkpoints: bool = False
    without_asking: bool = False
    """Delete them though nobody is there to answer."""
    stop_jobs: bool = False
    foreign_objects: bool = False
    """Delete queues, flavors and namespaces that the stack did not make."""

    @property
    def policies(self) -> list[str]:
        """Names of the policies that then only warn."""
        return [NO_JOB_RUNS] * self.stop_jobs + list(NO_FOREIGN) * self.foreign_objects


def down(settings: Path, root: Path, consent: Consent, console: Console) -> int:
    """Take the stack of the file `settings` down; the exit status.

    Raises:
        Halt, ProgramsError, SandboxError: it cannot; the message says why and what to do.
    """
    if not (root / "site.json").exists():
        _say(console, f"nothing to take down: there is no sandbox in {root}")
        return 0
    site = load(root)
    if consent.delete_checkpoints and not consent.without_asking:
        _require_agreement(buckets(site), console)
    with changing(site):
        title = f"tpu-multislice · {stack_file.stack_name(settings)}"
        removed = _remove(site, settings, Display(console, Snapshot(title, DOWN_PHASES)), consent)
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
    """Buckets that hold files, by name."""
    folders = sorted(folder for folder in site.buckets.glob("*") if folder.is_dir())
    found = [Bucket(folder.name, folder, _size(folder)) for folder in folders]
    return [bucket for bucket in found if bucket.size_bytes]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _require_agreement(found: list[Bucket], console: Console) -> None:
    listed = "".join(f"\n  {bucket.line()}" for bucket in found) or "\n  (no checkpoints)"
    if not sys.stdin.isatty():
        raise Halt(f"this would delete for good:{listed}\nNothing was touched. Add --yes to agree")
    _say(console, f"This deletes for good:{listed}")
    if input("Delete? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Halt("nothing was touched")


def _remove(site: Site, settings: Path, display: Display, consent: Consent) -> bool:
    """Destroy and stop what there is; False when there was nothing."""
    # The Automation API takes a second to import.
    from sandbox.engine import Engine

    engine = Engine(site, programs.found(), settings)
    destroyable = engine.destroyable()
    if not destroyable and daemon.running(site) is None:
        return False
    with display.shown():
        if destroyable:
            start_control_plane(display, site)
            recover(display, engine)
            operate(display, Phase.DESTROY, partial(engine.destroy, agreed=consent.policies), _DESTROY_ADVICE)
        with phase(display, Phase.STOP):
            daemon.stop(site)
    return True


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cli.down", description="Take the sandbox down.")
    parser.add_argument("--stack", default="local", help="name of the file stacks/Pulumi.STACK.yaml")
    parser.add_argument("--sandbox", type=Path, default=SANDBOX, help="folder of the sandbox")
    parser.add_argument("--delete-checkpoints", action="store_true", help="delete the whole folder of the sandbox")
    parser.add_argument("--stop-jobs", action="store_true", help="also while a job is running")
    parser.add_argument(
        "--foreign-objects", action="store_true", help="also delete queues and namespaces that the stack did not make"
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    given = parser.parse_args()
    console = Terminal(highlight=False)
    consent = Consent(given.delete_checkpoints, given.yes, given.stop_jobs, given.foreign_objects)
    return exit_status(lambda: down(stack_file.find(given.stack), given.sandbox, consent, console))


if __name__ == "__main__":
    sys.exit(main())

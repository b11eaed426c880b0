"""`make up`: the whole stack on this machine, followed until the job has ended.

Exit status: 0 when the job is complete or paused, or the stack has none, 1 when it failed or could not be started, 130
after Ctrl-C. What it looks like is `cli.view`'s affair, what runs is `sandbox`'s.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cli import stack_file
from cli.halt import INTERRUPTED, Halt, changing, exit_status
from cli.phases import operate, prepare_programs, recover, start_control_plane
from cli.sandbox_folder import SANDBOX
from cli.view import closing
from cli.view.display import Display
from cli.view.snapshot import UP_PHASES, Phase, Snapshot
from cli.watch import Target, Watcher
from sandbox import daemon
from sandbox.programs import Programs
from sandbox.site import Site, create
from workloads.terminal import Terminal

_APPLY_ADVICE = (
    "The sandbox goes on running. Repair the cause and run `make up` again; `make down` removes what is there"
)
_ALIVE_CHECK_SECONDS = 2
_DRAIN_SECONDS = 5


def up(settings: Path, root: Path, console: Console) -> int:
    """Bring the stack of the file `settings` up and follow its job, if it has one; the exit status.

    Raises:
        Halt, ProgramsError, SandboxError: it cannot; the message says why and what to do.
    """
    jobs = stack_file.read(settings).jobs
    site = _site(root)
    display = Display(console, Snapshot(f"tpu-multislice · {stack_file.stack_name(settings)}", UP_PHASES))
    with display.shown():
        with changing(site):
            found = prepare_programs(display)
            start_control_plane(display, site)
            outputs = _apply(display, site, found, settings)
        paused = [name for name, job in jobs.items() if job.paused]
        follows = outputs["jobs"] and outputs["job"]["name"] not in paused
        place = _follow_job(display, site, found, outputs) if follows else None
    if not console.is_terminal:
        # On a terminal the last live screen stays, and tells them.
        console.print(closing.times(display.snapshot))
    if place is None:
        end = closing.paused(paused) if paused else closing.without_jobs(site, found.path("kubectl"), outputs["queues"])
        console.print(end, soft_wrap=True)
        return 0
    return _close(console, display.snapshot, place)


def _follow_job(display: Display, site: Site, found: Programs, outputs: Mapping[str, Any]) -> closing.Place:
    job: Mapping[str, str] = outputs["job"]
    storage = f"{outputs['checkpoint_bucket']}/{job['name']}"
    place = closing.Place(site, found.path("kubectl"), job["namespace"], storage)
    display.change(lambda now: replace(now, job=job["name"], queue=job["queue"], hint=place.kill_command()))
    follow(display, Target(site, job["namespace"], job["name"], place.folder(storage)))
    return place


def _site(root: Path) -> Site:
    if root.is_dir() and any(root.iterdir()) and not (root / "site.json").exists():
        # `make down --delete-checkpoints` removes the whole folder.
        raise Halt(f"--sandbox must name a sandbox, or a new or empty folder; {root} holds other files: choose another")
    return create(root)


def _apply(display: Display, site: Site, found: Programs, settings: Path) -> Mapping[str, Any]:
    # The Automation API takes a second to import; faults of the settings are told before that.
    from sandbox.engine import Engine

    engine = Engine(site, found, settings)
    recover(display, engine)
    operate(display, Phase.PLAN, engine.preview, _APPLY_ADVICE)
    return operate(display, Phase.INFRASTRUCTURE, engine.up, _APPLY_ADVICE)


def follow(display: Display, target: Target) -> None:
    """Show the job until it has ended.

    Raises:
        Halt: Ctrl-C, or the sandbox stopped.
    """
    try:
        with Watcher(target, display).watching() as watcher:
            while not display.wait_until(lambda now: now.outcome is not None, _ALIVE_CHECK_SECONDS):
                _require_daemon(target.site)
            watcher.drain_log(_DRAIN_SECONDS)
    except KeyboardInterrupt:
        raise Halt(
            "the view is closed; the job goes on.\n"
            "See it again with `make up`, stop everything with `make down ARGS=--stop-jobs`",
            INTERRUPTED,
        ) from None


def _require_daemon(site: Site) -> None:
    if daemon.running(site) is None:
        raise Halt(
            f"the sandbox stopped while the job was running; {site.logs / 'daemon.log'} says why.\n"
            "Run `make up` again: the job resumes from its last checkpoint"
        )


def _close(console: Console, snapshot: Snapshot, place: closing.Place) -> int:
    complete = snapshot.outcome is not None and snapshot.outcome.state == "Completed"
    console.print((closing.completed if complete else closing.failed)(snapshot, place), soft_wrap=True)
    return 0 if complete else 1


def main() -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cli.up", description="Bring a stack up in the sandbox.")
    parser.add_argument("--stack", default="local", help="name of the file stacks/Pulumi.STACK.yaml")
    parser.add_argument("--sandbox", type=Path, default=SANDBOX, help="folder of the sandbox")
    options = parser.parse_args()
    return exit_status(lambda: up(stack_file.find(options.stack), options.sandbox, Terminal(highlight=False)))


if __name__ == "__main__":
    sys.exit(main())

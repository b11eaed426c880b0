"""Runs the phases that `multislice up` and `down` share in the sandbox, and shows their progress.

After Ctrl-C, the control plane is stopped if the command has started it, and Pulumi finishes operations in progress.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import psutil
from rich.console import Console
from rich.live import Live

from cli import progress
from cli.answer import INTERRUPTED, Halt
from cli.progress import Phase, Progress
from cli.sandbox_folder import StackOfSandbox
from sandbox import builds, daemon, programs
from sandbox.builds import BuildProgress
from sandbox.programs import Programs, ProgramsError
from sandbox.site import Site

if TYPE_CHECKING:
    # The Automation API takes a second to import.
    from sandbox.engine import Engine

_ERRORS_SHOWN = 5
_REFRESHES_PER_SECOND = 8
_POLL_SECONDS = 1


class Display:
    """Shows progress as a live screen on a terminal and as timestamped lines elsewhere.

    It is safe for several threads.
    """

    def __init__(self, console: Console, shown: Progress, about: StackOfSandbox) -> None:
        self.console = console
        self.about = about
        self.progress = shown
        self._lock = threading.Lock()
        self._live = Live(
            get_renderable=lambda: progress.screen(self.progress, time.time(), console.width),
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    @contextmanager
    def shown(self) -> Generator[Self]:
        """Show the progress until the context ends. The last screen stays visible."""
        with self._live if self.console.is_terminal else nullcontext():
            yield self

    def change(self, change: Callable[[Progress], Progress]) -> None:
        with self._lock:
            before, self.progress = self.progress, change(self.progress)
            if not self.console.is_terminal:
                stamp = time.strftime("%H:%M:%S")
                for line in progress.lines(before, self.progress):
                    self.console.print(f"{stamp}  {line}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def phase(display: Display, name: Phase) -> Generator[None]:
    """Show a phase until the context ends, and show it as failed after an exception."""
    display.change(lambda now: now.begin(name, time.time()))
    failed = True
    try:
        yield
        failed = False
    finally:
        display.change(lambda now: now.end(name, time.time(), failed=failed))


@dataclass(frozen=True)
class Preparation:
    """Programs that are found or built in the background, those of the engine first.

    Both methods wait, and raise ProgramsError if a build has failed.
    """

    _running: Future[Programs]

    def engine(self) -> Programs:
        """Return the programs once those that a plan needs exist."""
        while not self._running.done():
            with suppress(ProgramsError):
                return programs.found(programs.ENGINE)
            wait([self._running], _POLL_SECONDS)
        return self.all()

    def all(self) -> Programs:
        return self._running.result()


@contextmanager
def prepare_programs(display: Display) -> Generator[Preparation]:
    """Find or build the programs until the context ends, which ends an unfinished build."""
    ending = threading.Event()

    def report(build: BuildProgress) -> None:
        if ending.is_set():
            raise Halt("the build was stopped")
        detail = f"{build.index} of {build.total}: {build.state} {build.name}"
        display.change(lambda now: now.describe(Phase.PROGRAMS, detail))

    with phase(display, Phase.PROGRAMS), ThreadPoolExecutor(1) as pool:
        preparation = Preparation(pool.submit(builds.prepare, report))
        try:
            yield preparation
            found = preparation.all()
        finally:
            ending.set()
        display.change(lambda now: now.describe(Phase.PROGRAMS, _ready(found)))


def _ready(found: Programs) -> str:
    installed = [name for name, path in found.paths.items() if not path.is_relative_to(programs.cache_folder())]
    return f"{len(found.paths)} ready" + (f", installed: {', '.join(installed)}" if installed else "")


def start_control_plane(display: Display, site: Site) -> None:
    """Start the sandbox's servers unless they are running."""
    ran = daemon.running(site) is not None
    with phase(display, Phase.CONTROL_PLANE):
        try:
            daemon.start(site, lambda state: display.change(lambda now: now.describe(Phase.CONTROL_PLANE, state)))
        except KeyboardInterrupt:
            if not ran:
                daemon.stop(site)
            raise Halt("stopped; no server is left running", INTERRUPTED) from None
        detail = "already running" if ran else f"API server at {site.api_server_url}"
        display.change(lambda now: now.describe(Phase.CONTROL_PLANE, detail))


def recover(display: Display, engine: "Engine") -> None:
    """Complete the stack's state if an earlier command was killed, and report it. Raise Halt if Pulumi fails."""
    # The caller has already imported it to create the engine.
    from pulumi.automation import CommandError

    try:
        message = engine.recover()
    except CommandError as error:
        raise Halt(
            f"an earlier command was killed, and Pulumi cannot complete the stack's state: {error}\n"
            f"Run this command again. If it fails again, `{display.about.down('--delete-checkpoints')}` removes the"
            " sandbox and its checkpoints"
        ) from None
    if message:
        display.change(lambda now: now.describe(Phase.CONTROL_PLANE, message))


def operate[Result](
    display: Display, name: Phase, operation: Callable[[Callable[[Any], None]], Result], advice: str
) -> Result:
    """Run an operation of the Pulumi engine and show its events. `advice` says what to do if it fails.

    Raise Halt with Pulumi's errors if it fails, and after Ctrl-C, which cancels it.
    """
    # The caller has already imported it to create the engine. Reading a stack's state does not need it.
    from pulumi.automation import CommandError

    def show(event: Any) -> None:
        display.change(lambda now: progress.engine(now, name, event))

    with phase(display, name):
        try:
            result = _cancellable(display, name, lambda: operation(show))
        except CommandError as error:
            errors = display.progress.resources.errors[:_ERRORS_SHOWN] or (str(error),)
            listed = "\n".join(f"  {text}" for text in errors)
            raise Halt(f"Pulumi's {name} failed:\n{listed}\n{advice}") from None
        display.change(lambda now: progress.engine_done(now, name))
    return result


def _cancellable[Result](display: Display, name: Phase, work: Callable[[], Result]) -> Result:
    """Run `work` in a thread, so that Ctrl-C waits until Pulumi has finished the operations in progress."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        try:
            return running.result()
        except KeyboardInterrupt:
            display.change(lambda now: now.describe(name, "cancelling: Pulumi finishes operations in progress"))
            # A terminal sends Ctrl-C to Pulumi too. A second signal would make it drop operations in progress.
            if not sys.stdin.isatty():
                for child in psutil.Process(os.getpid()).children():
                    if child.name() == "pulumi":
                        child.send_signal(signal.SIGINT)
            wait([running])
            left = "the resources created so far stay, and the sandbox is still running"
            left = "a plan changes nothing" if name is Phase.PLAN else left
            advice = f"Continue with `{display.about.up()}`, or remove everything with `{display.about.down()}`"
            raise Halt(f"cancelled; {left}.\n{advice}", INTERRUPTED) from None

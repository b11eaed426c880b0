"""Records a real `make up`, one host of which is killed, for the pictures of the documents.

`make pictures ARGS=--record` runs it in a new sandbox of its own, which takes some minutes.
"""

import io
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from cli import engines
from cli.down import Consent, down
from cli.preview import run_preview
from cli.stack_file import files_of_project, policy_pack
from cli.up import up
from infra.review.review import Previewed
from infra.stack.project import find_project
from sandbox.engine import PolicyPack
from workloads.spec import Spec

RECORDING = Path(__file__).parent / "make_up.json"
COLUMNS, LINES = 100, 34
_HINT = re.compile(r"try: (kill .*?)\s*$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_LOOK_SECONDS = 0.5
_SECONDS_BEFORE_KILL = 4
_KEPT = {"phases": 3, "before": 3, "after": 4, "end": 1}
"""Number of screens of each part of the recording, evenly spaced."""


class Frame(Spec):
    """One screen."""

    seconds: float
    """Time since the command was typed."""
    part: str
    screen: str
    """Lines with ANSI colours."""


class Recording(Spec):
    """What was shown, and the files of the run."""

    frames: tuple[Frame, ...]
    killed: str
    """Command that killed the host."""
    files: dict[str, str]
    """Records of the run by their path below the job's folder."""
    preview: Previewed
    """Preview of the deployed stack with spot capacity."""


class _Terminal(Console):
    """A terminal without a screen, which remembers its live screen and the lines after it."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=COLUMNS, height=LINES, force_terminal=True, color_system="truecolor")
        self.live: Live | None = None
        self.after: list[RenderableType] = []

    def set_live(self, live: Live) -> bool:
        self.live, self.after = live, []
        return super().set_live(live)

    def print(self, *objects: RenderableType, **options: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.live and not self._live_stack:
            self.after += objects
        super().print(*objects, **options)  # pyright: ignore[reportArgumentType]

    def as_lines(self) -> str:
        """Return the live screen as lines with ANSI colours."""
        page = Console(file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor")
        for part in [self.live.get_renderable() if self.live else "", *self.after]:
            page.print(part, soft_wrap=part in self.after)
        assert isinstance(page.file, io.StringIO)
        return page.file.getvalue().rstrip("\n")


@dataclass
class _Recorder:
    """Looks at the terminal, and kills a host once the screen suggests it."""

    terminal: _Terminal
    sandbox: Path
    began: float = field(default_factory=time.monotonic)
    frames: list[Frame] = field(default_factory=list[Frame])
    killed: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        hinted = 0.0
        while not self.ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            self.take("after" if self.killed else "before")
            hint = _HINT.search(_COLOURS.sub("", self.frames[-1].screen)) if self.frames else None
            hinted = hinted or (now if hint else 0.0)
            if hint and not self.killed and now > hinted + _SECONDS_BEFORE_KILL:
                self.killed = hint[1]
                subprocess.run(["bash", "-c", self.killed], check=True)

    def take(self, part: str) -> None:
        """Keep the screen, unless it is the last one still."""
        if self.terminal.live is None:
            return
        # A sandbox in the folder of the project is not named in advice.
        screen = self.terminal.as_lines().replace(f" --sandbox {self.sandbox}", "")
        part = "phases" if "control plane" in screen else part
        if not self.frames or self.frames[-1].screen != screen:
            self.frames.append(Frame(seconds=round(time.monotonic() - self.began, 1), part=part, screen=screen))


def record() -> Recording:
    """Run the stack `local` in a new sandbox, kill a host, wait for the end, and remove the sandbox."""
    stack, home = find_project() / "stacks" / "Pulumi.local.yaml", Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        # The screen then shows the sandbox as `.sandbox`, as users see it in the folder of the project.
        os.chdir(folder)
        sandbox = Path(folder) / ".sandbox"
        recorder = _Recorder(_Terminal(), sandbox)
        thread = threading.Thread(target=recorder.watch)
        thread.start()
        try:
            status = up(stack, sandbox, recorder.terminal)
            recorder.ended.set()
            thread.join()
            recorder.take("end")
            os.chdir(home)
            assert (status, bool(recorder.killed)) == (0, True), recorder.frames[-1].screen
            return Recording(
                frames=tuple(_kept(recorder.frames)),
                killed=recorder.killed,
                files=dict(_records(sandbox)),
                preview=_preview(stack, sandbox),
            )
        finally:
            recorder.ended.set()
            down(stack, sandbox, Consent(stop_jobs=True), Console())
            os.chdir(home)


def _preview(stack: Path, sandbox: Path) -> Previewed:
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / stack.name
        changed.write_text(stack.read_text().replace("capacity: on-demand", "capacity: spot"))
        policy = PolicyPack(policy_pack(), files_of_project().policy("local"))
        with engines.open_engine(changed, sandbox, "preview", policy) as engine:
            return run_preview("local", engine, None)


def _kept(frames: Sequence[Frame]) -> Iterator[Frame]:
    for part, number in _KEPT.items():
        found = [frame for frame in frames if frame.part == part]
        # The last one of the part before the kill has the command to kill a host.
        yield from (found[round((place + 1) * len(found) / number) - 1] for place in range(number))


def _records(sandbox: Path) -> Iterator[tuple[str, str]]:
    """Yield the records of the run and of its failures; checkpoints are not records."""
    [runs] = sandbox.rglob("runs")
    for path in sorted(runs.parent.rglob("*.json*")):
        name = path.relative_to(runs.parent)
        if "checkpoints" not in name.parts:
            yield str(name), path.read_text()

"""The pictures of screens. `make pictures` draws them again, with `ARGS=--record` from a new recording.

A test draws each of them, and compares none with its file: whoever changes what a picture shows draws it again and
looks at it. The other pictures of the documents are written by hand.
"""

import io
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from etils import epath
from rich.console import Console

from infra.review import table
from infra.review.answers import answers
from infra.review.preview import preview_answers, preview_tables
from tests.documents.animation import WITHOUT_FONTS, animation
from tests.documents.llama_stack import llama_review
from tests.documents.pages import DOCS
from tests.documents.recording import COLUMNS, LINES, RECORDING, Recording, record
from workloads.report.goodput import goodput
from workloads.report.history import read_history
from workloads.report.tables import WIDTH, write

_BLANKS = re.compile(r"\n(\s*\n){2,}")
"""Several empty lines, as between the live screen and the closing lines."""


def _recorded() -> Recording:
    return Recording.model_validate_json(RECORDING.read_text())


def _make_up() -> str:
    recording = _recorded()
    struck = next(place for place, frame in enumerate(recording.frames) if frame.part == "after")
    screens = [_BLANKS.sub("\n\n", frame.screen) for frame in recording.frames]
    screens[struck - 1] += f"\n\n\x1b[1;33min another terminal: {recording.killed}\x1b[0m"
    return animation(screens, "make up", COLUMNS, LINES)


def _report() -> str:
    console = _console(WIDTH)
    files = _recorded().files
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        [run] = (Path(folder) / "runs").iterdir()
        write(goodput(read_history(epath.Path(run)).attempts), console)
    return _drawn(console, "multislice report -s local --sandbox .sandbox", "report")


def _preview() -> str:
    """Draw what the engine says when slices become spot."""
    console = _console(table.WIDTH)
    previewed = _recorded().preview
    shown = [*preview_answers(previewed), *preview_tables(previewed, verbose=False)]
    console.print(table.renderable(shown))
    return _drawn(console, "multislice preview -s local --sandbox .sandbox", "preview")


def _review() -> str:
    console = _console(table.WIDTH)
    console.print(table.renderable(answers(llama_review())))
    return _drawn(console, "multislice review -s llama", "review")


def _console(width: int) -> Console:
    return Console(record=True, width=width, file=io.StringIO(), highlight=False)


def _drawn(console: Console, title: str, unique_id: str) -> str:
    return console.export_svg(title=title, code_format=WITHOUT_FONTS, unique_id=unique_id)


PICTURES: Mapping[str, Callable[[], str]] = {
    "pictures/make-up.svg": _make_up,
    "pictures/report.svg": _report,
    "pictures/preview-local.svg": _preview,
    "pictures/review.svg": _review,
}
"""What draws each of them, by its path in `docs`."""


if __name__ == "__main__":
    if "--record" in sys.argv[1:]:
        RECORDING.write_text(record().model_dump_json(indent=1) + "\n")
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw())

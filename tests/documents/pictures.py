"""The pictures of the documents. `python -m tests.documents.pictures` draws them again.

A test draws each of them, and compares none with its file: whoever changes what a picture shows draws it again and
looks at it.
"""

import io
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from chaos import report
from cli import engines, progress, status
from cli.observed.files import Files, Training
from cli.observed.snapshot import Queue, Share, Snapshot
from infra.cost import bill
from infra.review import table
from infra.review.preview import preview_tables
from infra.review.review import Previewed, review
from infra.review.tables import tables
from infra.settings.read import parse
from tests.cli import recordings
from tests.cli.explain.cases import JOB, NODES, PODS
from tests.cli.test_engines import recorded
from tests.cli.test_progress import NOW
from tests.documents import concept_pictures
from tests.documents.pages import DOCS
from tests.documents.reliability_reference import FAULTS_PICTURE, LONG_RUN_PICTURE, long_run, measured
from tests.infra.recording import stack_values
from tests.infra.review.known import NOTHING, own, running
from tests.workloads.report.runs import crashed_and_resumed, history
from workloads.preflight_result import PreflightResult
from workloads.report.goodput import goodput
from workloads.report.tables import WIDTH, write

_WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""No font from another site: whoever looks at the picture has a monospaced one."""
_COMPILED = Path(__file__).parent / "prod_preflight.json"
"""What `multislice preflight -s prod` found and kept."""


def _make_up() -> str:
    console = _console(100)
    console.print(progress.screen(recordings.applied(), NOW, 100))
    losses = tuple((step, 5.5 - 3 * (step / 200) ** 0.5) for step in range(1, 121))
    training = Training("new", "r1", 120, 200, losses[-1][1], 41_234.4, 49.6, 3.479, 100, losses)
    job = replace(JOB, pods=PODS, files=Files(training))
    queue = Queue("research", "research", (Share("trillium", 16, 16, 0),), 0, 1, ())
    shown = Snapshot("local", "", "local", JOB.created + 42, nodes=NODES, queues=(queue,), jobs=(job,))
    console.print(status.screen(shown, [job], 100))
    console.print("try: kill -9 $(cat .sandbox/pods/*-slice-1-0-*/pid)", style="dim")
    return _drawn(console, "make up", "make-up")


def _report() -> str:
    console = _console(WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        write(goodput(history(crashed_and_resumed(Path(folder), 752.64, 188.16)).starts), console)
    return _drawn(console, "multislice report -s prod", "report")


def _preview() -> str:
    """What the engine told when slices became spot."""
    values = stack_values("local")
    known = replace(NOTHING, deployed=bill(parse(values), {}, None), workloads=[])
    values["slices"]["trillium"]["capacity"] = "spot"
    events = recorded("to-spot")
    previewed = Previewed(
        stack="local",
        review=review("local", parse(values), known),
        changes=engines.changes(events),
        unchanged=engines.unchanged(events),
        findings=(),
        errors=(),
        seconds=8,
    )
    console = _console(table.WIDTH)
    console.print(table.renderable(preview_tables(previewed)))
    return _drawn(console, "multislice preview -s local --sandbox .sandbox", "preview")


def _review() -> str:
    """`prod` with one slice more than is deployed."""
    values = own("prod")
    settings = parse(values)
    values["slices"]["cubes"]["count"] = 5
    known = replace(
        NOTHING,
        preflights={"pretrain": PreflightResult.model_validate_json(_COMPILED.read_text())},
        deployed=bill(parse(values), {}, None),
        workloads=[running("pretraining", "pretraining", "v5p-4x4x4-reservation-cubes", 192)],
    )
    console = _console(table.WIDTH)
    console.print(table.renderable(tables(review("prod", settings, known))))
    return _drawn(console, "multislice review -s prod", "review")


def _console(width: int) -> Console:
    return Console(record=True, width=width, file=io.StringIO(), highlight=False)


def _drawn(console: Console, title: str, unique_id: str) -> str:
    return console.export_svg(title=title, code_format=_WITHOUT_FONTS, unique_id=unique_id)


PICTURES: Mapping[str, Callable[[], str]] = {
    **concept_pictures.PICTURES,
    "pictures/make-up.svg": _make_up,
    "pictures/report.svg": _report,
    "pictures/preview-local.svg": _preview,
    "pictures/review.svg": _review,
    FAULTS_PICTURE: lambda: report.picture(measured()),
    LONG_RUN_PICTURE: lambda: report.long_run_picture(long_run()),
}
"""What draws each of them, by its path in `docs`."""


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw())

"""The picture of a preview is drawn from what the engine told when slices became spot."""

import io
import os

from rich.console import Console

from cli import engine_events
from infra.bill import bill
from infra.review.preview_tables import preview_tables
from infra.review.previewed import Previewed
from infra.review.review import Known, review
from infra.review.table import WIDTH, renderable
from infra.settings import parse
from tests.cli.test_engine_events import recorded
from tests.cli.view.test_picture import WITHOUT_FONTS
from tests.infra.recording import ROOT, stack_values
from tests.infra.review.known import TODAY

PICTURE = ROOT / "docs" / "preview-local.svg"


def test_the_picture_in_the_documents_shows_the_preview_of_today() -> None:
    values = stack_values("local")
    known = Known(today=TODAY, preflights={}, deployed=bill(parse(values), {}, None), workloads=[])
    values["slices"]["trillium"]["capacity"] = "spot"
    events = recorded("to-spot")
    previewed = Previewed(
        stack="local",
        review=review("local", parse(values), known),
        changes=engine_events.changes(events),
        unchanged=engine_events.unchanged(events),
        findings=(),
        errors=(),
        seconds=8,
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(renderable(preview_tables(previewed)))
    title = "multislice preview -s local --sandbox .sandbox"
    drawn = console.export_svg(title=title, code_format=WITHOUT_FONTS, unique_id="preview")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PICTURE.write_text(drawn)
    assert PICTURE.read_text() == drawn

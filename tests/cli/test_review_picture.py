"""The picture of a review is drawn from the stack `prod` and what was compiled for it."""

import io
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from infra.bill import bill
from infra.review.review import review
from infra.review.table import WIDTH, renderable
from infra.review.tables import tables
from infra.settings import parse
from tests.cli.view.test_picture import WITHOUT_FONTS
from tests.infra.recording import ROOT, stack_values
from tests.infra.review.known import NOTHING, running
from workloads.preflight_result import PreflightResult

PICTURE = ROOT / "docs" / "review.svg"
COMPILED = Path(__file__).parent / "prod_preflight.json"
"""What `multislice preflight -s prod` found and kept."""


def test_the_picture_in_the_documents_shows_the_review_of_today() -> None:
    values = stack_values("prod")
    settings = parse(values)
    values["slices"]["cubes"]["count"] = 5
    known = replace(
        NOTHING,
        preflights={"pretrain": PreflightResult.model_validate_json(COMPILED.read_text())},
        deployed=bill(parse(values), {}, None),
        workloads=[running("pretraining", "pretraining", "v5p-4x4x4-reservation-cubes", 192)],
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(renderable(tables(review("prod", settings, known))))
    drawn = console.export_svg(title="multislice review -s prod", code_format=WITHOUT_FONTS, unique_id="review")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PICTURE.write_text(drawn)
    assert PICTURE.read_text() == drawn

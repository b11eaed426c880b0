"""The picture of a report is drawn from a run that was written by hand."""

import io
import os
from pathlib import Path

from rich.console import Console

from tests.cli.view.test_picture import WITHOUT_FONTS
from tests.infra.recording import ROOT
from tests.workloads.report.runs import crashed_and_resumed, history
from workloads.report.goodput import goodput
from workloads.report.tables import WIDTH, write

PICTURE = ROOT / "docs" / "report.svg"


def test_the_picture_in_the_documents_shows_the_report_of_today(tmp_path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    write(goodput(history(crashed_and_resumed(tmp_path, 752.64, 188.16)).starts), console)
    drawn = console.export_svg(title="multislice report -s prod", code_format=WITHOUT_FONTS, unique_id="report")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PICTURE.write_text(drawn)
    assert PICTURE.read_text() == drawn

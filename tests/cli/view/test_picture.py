"""The picture of the README is the view itself, drawn from a recording."""

import io
import os
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from cli.view.render import screen
from tests.cli.view import recordings
from tests.cli.view.test_render import NOW

PICTURE = Path(__file__).parents[3] / "docs" / "make-up.svg"

WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""No font from another site: whoever looks at the picture has a monospaced one."""


def test_the_picture_in_the_readme_shows_the_view_of_today() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(screen(recordings.training(), NOW, 100))
    drawn = console.export_svg(title="make up", code_format=WITHOUT_FONTS, unique_id="make-up")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PICTURE.write_text(drawn)
    assert PICTURE.read_text() == drawn

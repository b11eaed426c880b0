"""What others wrote is shown on a terminal as text, and does nothing there.

Pods, events, failure records and buckets hold whatever somebody wrote into them, also sequences by which a terminal
clears its screen, sets the clipboard or shows a link to elsewhere.
"""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters save tab and line feed, and those by which text is shown in another order than it is written."""
_PICTURES = {**{code: 0x2400 + code for code in range(0x20)}, 0x7F: 0x2421}
"""Unicode's pictures of control characters, each of which takes one cell."""
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def inert(text: str) -> str:
    """Return the text with a visible sign in place of each character that would act on a terminal.

    Where a line would be written over, as by a progress bar, a new one begins.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ACTS.sub(lambda found: chr(_PICTURES.get(ord(found[0]), ord(_UNKNOWN))), lines)


class Terminal(Console):
    """A console on which nothing but Rich's own styles acts, and no text is a link."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does; each text is inert."""
        for text, style, control in super().render(renderable, options):
            if control:
                yield Segment(text, style, control)
            else:
                yield Segment(inert(text), style.update_link(None) if style and style.link else style)

"""Shows untrusted text on a terminal without effects of control characters.

Pods, events, failure records and buckets may contain sequences with which a terminal clears its screen, sets the
clipboard or shows a misleading link.
"""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change the direction of text."""
_PICTURES = {**{code: 0x2400 + code for code in range(0x20)}, 0x7F: 0x2421}
"""Unicode's pictures of control characters, each of which takes one cell."""
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def inert(text: str) -> str:
    """Return the text with a visible symbol in place of each character that acts on a terminal.

    A carriage return, as in a progress bar, becomes a new line.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ACTS.sub(lambda found: chr(_PICTURES.get(ord(found[0]), ord(_UNKNOWN))), lines)


class Terminal(Console):
    """A console that applies only Rich's own styles and shows no links."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does, with inert text."""
        for text, style, control in super().render(renderable, options):
            if control:
                yield Segment(text, style, control)
            else:
                yield Segment(inert(text), style.update_link(None) if style and style.link else style)

"""Builds elements of SVG and HTML as escaped text, with titles and descriptions for screen readers."""

import re
from html import escape
from importlib.resources import files
from zlib import crc32

_CAPTION_HEIGHT = 20

_DARK = re.compile(r"^@media \(prefers-color-scheme: dark\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_COLOUR = re.compile(r"--([\w-]+): ([^;]+);")
_USE = re.compile(r"var\(--([\w-]+)\)")


def element(name: str, *children: str, **attributes: object) -> str:
    """Return one element. `children` are already markup.

    In attribute names, trailing underscores are removed and other underscores become dashes.
    """
    words = [f'{key.rstrip("_").replace("_", "-")}="{escape(_word(value))}"' for key, value in attributes.items()]
    head = " ".join([name, *words])
    return f"<{head}>{''.join(children)}</{name}>"


def _word(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def style_sheet() -> str:
    """Return the CSS of the page and its pictures."""
    return (files("workloads.report") / "page.css").read_text()


def document(caption: str, drawing: str, width: int, height: int) -> str:
    """Return a picture of that size as a separate file with its own caption and colours.

    SVG renderers outside of browsers support neither CSS variables nor automatic height.
    """
    size = f"width: {width}px; height: {height}px;"
    return element(
        "svg",
        # A margin would push the caption out of the picture.
        element("style", f"{_in_light_colours(style_sheet())}svg {{ margin: 0; }} svg svg {{ {size} }}"),
        element("rect", width="100%", height="100%", class_="inner"),
        drawing,
        text(caption, 8, height + _CAPTION_HEIGHT - 6, class_="label"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height + _CAPTION_HEIGHT}",
    )


def _in_light_colours(sheet: str) -> str:
    """Return the style sheet with its variables replaced by the colours of the light scheme."""
    colours = dict(_COLOUR.findall(_DARK.sub("", sheet)))
    return _USE.sub(lambda use: colours[use[1]], _DARK.sub("", sheet))


def text(words: object, x: float, y: float, **attributes: object) -> str:
    """Return words in a picture."""
    return element("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def title(words: str) -> str:
    """Return a tooltip of the element around it."""
    return element("title", escape(words))


def picture(name: str, description: str, width: int, height: int, *children: str) -> str:
    """Return a picture with a name and a description."""
    # A hash, not a counter, so that a picture is the same text wherever it is drawn.
    number = f"{crc32((name + description).encode()):08x}"
    named = element("title", escape(name), id=f"name-{number}")
    described = element("desc", escape(description), id=f"description-{number}")
    return element(
        "svg",
        named,
        described,
        *children,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_labelledby=f"name-{number} description-{number}",
    )

"""Elements of SVG and HTML as text.

Owns escaping and the frame of a picture that a screen reader can name; what is drawn is up to the others.
"""

import re
from html import escape
from importlib.resources import files
from zlib import crc32

_CAPTION_HEIGHT = 20

_DARK = re.compile(r"^@media \(prefers-color-scheme: dark\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_COLOUR = re.compile(r"--([\w-]+): ([^;]+);")
_USE = re.compile(r"var\(--([\w-]+)\)")


def element(name: str, *children: str, **attributes: object) -> str:
    """One element. `children` are markup already; trailing underscores of attribute names go, others become dashes."""
    words = [f'{key.rstrip("_").replace("_", "-")}="{escape(_word(value))}"' for key, value in attributes.items()]
    head = " ".join([name, *words])
    return f"<{head}>{''.join(children)}</{name}>"


def _word(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def style_sheet() -> str:
    """What the classes of pictures mean."""
    return (files("workloads.report") / "page.css").read_text()


def document(caption: str, drawing: str, width: int, height: int) -> str:
    """A picture of that size as a file of its own, where no page lends it words and colours.

    Programs that draw SVG outside of browsers know no variables of CSS and no automatic height.
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
    """The style sheet with its variables written out, those for dark screens left out."""
    colours = dict(_COLOUR.findall(_DARK.sub("", sheet)))
    return _USE.sub(lambda use: colours[use[1]], _DARK.sub("", sheet))


def text(words: object, x: float, y: float, **attributes: object) -> str:
    """Words in a picture."""
    return element("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def title(words: str) -> str:
    """What appears when the pointer rests on the element around it."""
    return element("title", escape(words))


def picture(name: str, description: str, width: int, height: int, *children: str) -> str:
    """A picture with a name and a description."""
    # Not counted: the same picture is the same text, whatever was drawn before it.
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

"""Elements of SVG and HTML as text.

Owns escaping and the frame of a picture that a screen reader can name; what is drawn is up to the others.
"""

from html import escape
from importlib.resources import files
from itertools import count

_identities = count(1)


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
    """A picture of that size as a file of its own, where no page lends it words and colours."""
    return element(
        "svg",
        element("style", style_sheet()),
        element("rect", width="100%", height="100%", class_="inner"),
        drawing,
        text(caption, 8, height - 1, class_="label"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
    )


def text(words: object, x: float, y: float, **attributes: object) -> str:
    """Words in a picture."""
    return element("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def title(words: str) -> str:
    """What appears when the pointer rests on the element around it."""
    return element("title", escape(words))


def picture(name: str, description: str, width: int, height: int, *children: str) -> str:
    """A picture with a name and a description."""
    number = next(_identities)
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

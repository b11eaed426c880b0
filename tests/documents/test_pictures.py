"""The pictures of the documents are there, and those of screens can be drawn."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.documents.animation import animation
from tests.documents.pages import DOCS, PAGES
from tests.documents.pictures import PICTURES

SHOWN = {
    (page.parent / link).resolve() for page in PAGES for link in re.findall(r"\]\(([^)]+\.svg)\)", page.read_text())
}
ELSEWHERE = re.compile(r"<(script|image|foreignObject)\b|@import|url\((?!#)")


@pytest.mark.parametrize("name", sorted(str(path.relative_to(DOCS)) for path in SHOWN))
def test_a_picture_needs_nothing_from_elsewhere(name: str) -> None:
    for drawn in ((DOCS / name).read_text(), *(PICTURES[each]() for each in PICTURES if each == name)):
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
        assert not ELSEWHERE.search(drawn)


def test_every_picture_is_shown_by_a_page() -> None:
    assert {DOCS / name for name in PICTURES} <= SHOWN == set(DOCS.rglob("*.svg"))


def test_screens_are_shown_in_turn_and_the_last_one_to_readers_who_prefer_reduced_motion() -> None:
    drawn = animation(["first", "\x1b[32msecond\x1b[0m", "a\nb\nc"], "make up", columns=20, lines=2)
    groups = re.findall(r'<g class="frame f(\d)".*?</g></g>', drawn, re.DOTALL)
    words = [str(text.text).strip() for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert groups == ["0", "1", "2"]
    assert [word for word in words if word] == ["make\N{NO-BREAK SPACE}up", "first", "second", "b", "c"]
    assert ".frame { visibility: hidden; }\n.f2 { visibility: visible; }" in drawn
    assert "@media (prefers-reduced-motion: reduce) { .frame { animation: none; } }" in drawn

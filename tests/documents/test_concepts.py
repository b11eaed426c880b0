"""docs/concepts.md: its pictures are drawn anew, and what it names is what the program has."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from infra.settings import parse
from tests.documents.concept_pictures import pictures
from tests.documents.diagrams import Box, flow
from tests.documents.pages import DOCS, blocks, hold
from tests.infra.one_job import only_spec
from tests.infra.recording import stack_values
from workloads.training import runs

TEXT = (DOCS / "concepts.md").read_text()


@pytest.mark.parametrize("name", pictures())
def test_a_picture_is_what_the_program_says_today(name: str) -> None:
    hold(DOCS / name, pictures()[name])


def test_every_picture_is_shown() -> None:
    assert set(re.findall(r"\((concepts-\w+\.svg)\)", TEXT)) == set(pictures())


@pytest.mark.parametrize("name", pictures())
def test_a_picture_needs_nothing_from_elsewhere(name: str) -> None:
    text = pictures()[name]
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|image|foreignObject)|@import|url\(", text)


def test_a_picture_has_each_box_with_all_its_words() -> None:
    long = "a sentence that is longer than one line of a box can be"
    drawn = flow("name", "caption", [Box("first", ["x"]), Box("second", [long])])
    words = [text.text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"first", "second", "caption"} <= set(words)
    assert long in " ".join(str(word) for word in words)


def test_the_numbers_are_those_of_dev() -> None:
    spec = only_spec(parse(stack_values("dev")))
    chips = spec.slices.count * spec.slices.hosts * spec.slices.chips_per_host
    told = re.search(r"`dev` has (\d+) slices of (\d+) hosts with (\d+) chips each, (\d+) chips in all", TEXT)
    assert told is not None
    assert told.groups() == tuple(map(str, (spec.slices.count, spec.slices.hosts, spec.slices.chips_per_host, chips)))


def test_the_folders_of_a_run_are_those_that_the_trainer_says_it_makes() -> None:
    (tree,) = blocks(TEXT, "text")
    named = re.findall(r"^(?:  )+([\w.-]+)/?", tree, re.MULTILINE)
    assert named
    said = runs.__doc__ or ""
    assert [name for name in named if name not in said] == []

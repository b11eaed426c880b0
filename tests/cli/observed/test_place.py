from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.deployed import Deployed, JobPlace
from cli.halt import Halt
from cli.observed.place import place_of
from tests.cli import api_objects
from tests.cli.api_objects import JOBSETS
from tests.cli.api_server import Played, playing
from tests.cli.standing import running, stack

THEIRS = JOBSETS.replace("research", "product")


@pytest.fixture
def server() -> Generator[Played]:
    """The stack's job `tiny` in `research`, and what members of `product` submitted there."""
    with playing(running()) as played:
        played.collections[THEIRS] = [api_objects.jobset(name="theirs")]
        yield played


@pytest.fixture
def deployed(server: Played, tmp_path: Path) -> Deployed:
    """A stack of two teams."""
    return replace(stack(server, tmp_path), outputs={"queues": {"research": "research", "product": "product"}})


@pytest.mark.parametrize("name", [None, "tiny", "research/tiny"])
def test_the_stacks_job_is_meant(deployed: Deployed, name: str | None) -> None:
    assert place_of(deployed, name) == JobPlace("tiny", "research", "research")


@pytest.mark.parametrize("name", ["theirs", "product/theirs"])
def test_a_job_that_a_member_submitted_is_found(deployed: Deployed, name: str) -> None:
    assert place_of(deployed, name).full_name == "product/theirs"


def test_a_name_that_several_namespaces_have_is_refused(server: Played, deployed: Deployed) -> None:
    server.collections[THEIRS] = [api_objects.jobset()]
    with pytest.raises(Halt, match="name one of them: research/tiny or product/tiny"):
        place_of(deployed, "tiny")
    assert place_of(deployed, "product/tiny").namespace == "product"


def test_a_namespace_that_one_may_not_look_into_has_no_job_of_ones_own(server: Played, deployed: Deployed) -> None:
    server.refused[f"{THEIRS}/tiny"] = 403
    assert place_of(deployed, "tiny").namespace == "research"


@pytest.mark.parametrize("name", ["other", "product/tiny", "elsewhere/tiny"])
def test_a_job_that_is_not_there_is_told(deployed: Deployed, name: str) -> None:
    with pytest.raises(Halt, match=f"got {name!r}"):
        place_of(deployed, name)

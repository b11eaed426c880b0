from pathlib import Path

import pytest

from sandbox import programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.site import create
from tests.chain.stack import Reviews, ignore

STACKS = sorted((CHECKOUT / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("stack_file", STACKS, ids=lambda path: path.stem)
def test_every_stack_previews_without_a_cloud_or_a_cluster_and_tells_its_review(stack_file: Path, tmp_path: Path):
    programs.prepare(ignore)
    reviews = Reviews()
    planned = Engine(create(tmp_path), programs.found(), stack_file).preview(reviews)
    assert set(planned.change_summary) == {"create"}
    (told,) = reviews.told
    assert told.startswith(f"review of {stack_file.stem.removeprefix('Pulumi.')}\n\nPrice  ")
    assert "no cluster was asked" in told

from pathlib import Path

import pytest

from benchmarks.previews import resources_of
from sandbox import programs
from sandbox.daemon import CHECKOUT
from tests.chain.stack import ignore

STACKS = sorted((CHECKOUT / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("stack_file", STACKS, ids=lambda path: path.stem)
def test_every_stack_previews_without_a_cloud_or_a_cluster(stack_file: Path):
    programs.prepare(ignore)
    assert resources_of(stack_file)

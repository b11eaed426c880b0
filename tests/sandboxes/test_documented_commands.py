"""A reader follows the README, the first tutorial, and the pages on functions and own trainers, in a clone.

Nothing in their commands is changed. Only the edits of the stack file that the pages describe are made here.
"""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.chain.stack import PATIENCE_SECONDS, wait_until
from tests.documents.clone import Clone, clone_in
from tests.documents.command_lines import joined
from tests.documents.pages import DOCS, ROOT, blocks

pytestmark = pytest.mark.complete

README = (ROOT / "README.md").read_text()
FIRST_RUN = (DOCS / "tutorials" / "first-run.md").read_text()
FUNCTIONS = (DOCS / "how-to" / "functions.md").read_text()
YOUR_TRAINER = (DOCS / "how-to" / "your-trainer.md").read_text()
DEVICES = 16


@pytest.fixture
def clone(tmp_path: Path) -> Generator[Clone]:
    """A clone whose sandbox is down at the end, whatever happens."""
    made = clone_in(tmp_path / "clone")
    yield made
    made.run(["[ ! -e .sandbox ] || make down ARGS=--stop-jobs"])


def _change_stack(clone: Clone, find: str, replacement: str) -> None:
    file = clone.root / "stacks" / "Pulumi.local.yaml"
    text, count = re.subn(find, lambda _: replacement, file.read_text(), flags=re.DOTALL)
    assert count == 1
    file.write_text(text)


@pytest.mark.timeout(6 * PATIENCE_SECONDS)
def test_a_reader_trains_kills_a_host_looks_changes_calls_and_removes(clone: Clone, tmp_path: Path) -> None:
    _, (kill,), look, change, down = map(joined, blocks(FIRST_RUN, "sh"))
    make_up = next(line for block in blocks(README, "sh") for line in joined(block) if line.startswith("make up"))
    screen = tmp_path / "screen"
    with clone.started(make_up, screen) as up:
        wait_until(lambda: f"try: {kill}" in screen.read_text() or up.poll() is not None, screen.read_text)
        clone.run([kill])
        assert up.wait(PATIENCE_SECONDS) == 0, screen.read_text()
    assert "slice-1-0" in clone.run(look)
    _change_stack(clone, r"(?<=preset: tiny\n)", "    training: {steps: 200}\n")
    assert "step 200" in clone.run([*look[:1], *change])
    (clone.root / "first.py").write_text(blocks(FUNCTIONS, "python")[0])
    (example,) = [line for block in blocks(FUNCTIONS, "sh") for line in joined(block) if "-m examples" in line]
    assert f"{10 * DEVICES}\n" in clone.run([".venv/bin/python first.py"])
    rows = 4 * DEVICES
    assert f"'sum': {rows * (rows - 1) / 2}" in clone.run([example])
    _change_stack(clone, r"  tpu-multislice:job:\n.*", blocks(YOUR_TRAINER, "yaml")[0])
    assert "step 1000" in clone.run([make_up])
    clone.run(down)

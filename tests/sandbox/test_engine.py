"""How the engine keeps the state of a sandbox."""

from pathlib import Path

import pytest

from sandbox import programs
from sandbox.engine import stack_in
from sandbox.site import create
from tests.chain.stack import ignore


@pytest.mark.costs(cpu_seconds=8)
def test_the_state_is_kept_in_files_alone_that_are_replaced_as_a_whole(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    stack_in(site, programs.prepare(ignore), "local", lambda: None).up()
    kept = [path.name for path in (site.root / "state").rglob("local*") if path.is_file()]
    assert "local.json" in kept
    assert [name for name in kept if name.endswith(".attrs")] == []

"""What `multislice rehearse` says in clusters of others, and what their Kueue then does when the job is created.

`UPDATE_GOLDEN=1` writes what Kueue does into the record that `tests.cli.rehearse` replays.
"""

import os
from pathlib import Path

import pytest

from sandbox.programs import versions
from tests.chain.stack import sandbox_in
from tests.cli.rehearse import recorded
from tests.cli.rehearse.cases import CONFIGURATIONS
from tests.cli.rehearse.recorded import Decided
from tests.cli.rehearse.situations import CASES
from tests.sandboxes import foreign

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]

EVERY = 4
"""The test takes each fourth case, unless it writes the record."""


def test_kueue_does_what_the_command_says(tmp_path: Path) -> None:
    renews = os.environ.get("UPDATE_GOLDEN") == "1"
    found: list[Decided] = []
    differing: list[str] = []
    configurations: dict[str, str] = {}
    with sandbox_in(tmp_path / "foreign") as chain:
        for name, more in CONFIGURATIONS.items():
            cases = [case for case in CASES if case.config == name][:: 1 if renews else EVERY]
            configurations[name] = (foreign.configure if configurations else foreign.install)(chain, more)
            for case, (decided, said) in zip(cases, foreign.decide(chain, cases, tmp_path), strict=True):
                found.append(decided)
                differing += decided.differences(case, said)
    if renews:
        recorded.write(versions()["kueue"], configurations, found)
    assert not differing, "\n".join(differing)

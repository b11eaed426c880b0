"""Decisions of a real Kueue in clusters of others: `rehearse` says what Kueue did, or that it is not known."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.rehearse import submission
from cli.rehearse.rehearse import rehearse_file
from infra.cluster import kueue_objects
from sandbox.programs import versions
from tests.cli.rehearse import recorded
from tests.cli.rehearse.recorded import RECORD_AGAIN, Decided, Recorded, digest_of
from tests.cli.rehearse.situations import CASES

PARTS = 4


@pytest.fixture(scope="module")
def record() -> tuple[Mapping[str, str], list[Decided]]:
    _, configurations, decisions = recorded.read()
    return configurations, decisions


def test_the_record_has_every_case_as_it_is_now_and_the_kueue_of_the_sandbox() -> None:
    version, _, decisions = recorded.read()
    runs = versions()["kueue"]
    assert version == runs, f"Kueue {version} decided, and the sandbox runs Kueue {runs}; {RECORD_AGAIN}"
    assert {each.case: each.digest for each in decisions} == {case.name: digest_of(case) for case in CASES}, (
        RECORD_AGAIN
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_rehearsed_is_what_kueue_did_or_is_not_known(
    record: tuple[Mapping[str, str], list[Decided]], tmp_path: Path, part: int
) -> None:
    configurations, decisions = record
    cases = {case.name: case for case in CASES}
    differing: list[str] = []
    for each in decisions[part::PARTS]:
        case = cases[each.case]
        api = Recorded.of_decided(each, configurations[case.config])
        (tmp_path / "job.json").write_text(json.dumps(case.next))
        file = submission.read(tmp_path / "job.json", case.name, case.name)
        (said,) = rehearse_file(file, kueue_objects.read(api, case.name))
        differing += each.differences(case, said)
    assert not differing, "\n".join(differing)

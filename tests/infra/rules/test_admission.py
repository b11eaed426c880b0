"""Jobs that their queue can never admit are refused, with the numbers; others are not."""

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.recording import Values

GROUP = {"generation": "v6e", "topology": "2x4", "count": 2, "capacity": "spot"}
"""16 chips, all of which the job takes."""


def _stack(values: Values, own: object, *others: object, fallback: tuple[str, ...] = ()) -> Values:
    """Two groups of 16 chips, the job's team with quota `own`, and teams with the quotas `others`."""
    lenders = {f"team-{index}": {"namespace": f"n{index}", "quota": quota} for index, quota in enumerate(others)}
    return values | {
        "slices": {"trillium": GROUP, "azure": GROUP},
        "teams": {"research": {"namespace": "research", "quota": own}, **lenders},
        "job": values["job"] | {"slices": {"group": "trillium", "count": 2, "fallback": list(fallback)}},
    }


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (16, 0),
        (8, 8),
        (0, 16),
        ({"chips": 8, "borrowing_limit": 8}, {"chips": 8, "lending_limit": 8}),
        ({"chips": 16, "lending_limit": 0, "borrowing_limit": 0}, 0),
    ],
)
def test_a_job_may_live_on_its_own_chips_and_those_it_borrows(values: Values, own: object, other: object) -> None:
    parse(_stack(values, {"trillium": own}, {"trillium": other}))


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (12, [], "at least the 16 chips of job tiny, got 12; raise it to 16 or lower job.slices.count"),
        (8, [4], "got 8 of its own and 4 that it may borrow; raise it to 12, or the limits, or lower job.slices.count"),
        ({"chips": 8, "borrowing_limit": 4}, [8], "got 8 of its own and 4 that it may borrow; raise it to 12"),
        (8, [{"chips": 8, "lending_limit": 2}], "got 8 of its own and 2 that it may borrow; raise it to 14"),
        (0, [4, {"chips": 8, "lending_limit": 8}], "got 0 of its own and 12 that it may borrow; raise it to 4"),
    ],
)
def test_a_job_that_could_never_be_admitted_is_refused(
    values: Values, own: object, others: list[object], words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        parse(_stack(values, {"trillium": own}, *({"trillium": other} for other in others)))
    (fault,) = raised.value.errors
    assert fault.path == "teams.research.quota.trillium"
    assert words in str(fault)


def test_every_group_that_a_job_may_fall_back_to_must_be_able_to_take_it(values: Values) -> None:
    with pytest.raises(SettingsError) as raised:
        parse(_stack(values, {"trillium": 16, "azure": 8}, fallback=("azure",)))
    assert "teams.research.quota.azure" in {fault.path for fault in raised.value.errors}
    with pytest.raises(SettingsError, match=r"at least the 16 chips of job tiny, got nothing; add it with 16"):
        parse(_stack(values, {"trillium": 16}, fallback=("azure",)))


def test_a_job_of_a_team_that_is_on_hold_may_wait(values: Values) -> None:
    values["teams"]["research"]["admission"] = "hold"
    parse(values)


def test_a_team_with_a_fault_of_its_own_is_not_taken_for_one_that_lends_nothing(values: Values) -> None:
    with pytest.raises(SettingsError) as raised:
        parse(_stack(values, {"trillium": 8}, {"trillium": "many"}))
    assert {fault.path for fault in raised.value.errors} == {"teams.team-0.quota.trillium.chips"}

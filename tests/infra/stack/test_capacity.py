"""Kinds of capacity: what is refused and why, and what is declared for each on Google Cloud and in Kueue."""

import re

import pytest

from tests.infra.recording import Values
from tests.infra.spoiling import errors_of

CUBES = {"generation": "v5p", "topology": "4x4x4"}
IRONWOOD = {"generation": "7x", "topology": "4x4x4"}
RESERVED = {"kind": "reservation", "name": "chips"}
IN_BLOCK = RESERVED | {"block": "b"}
IN_PART = IN_BLOCK | {"sub_block": "s"}
FLEX = {"kind": "flex-start", "max_run_hours": 4}
QUEUED = {"kind": "queued", "max_run_hours": 4}
OUTSIDE = "hours from 0.17 (10 minutes) to 168 (7 days)"
NAME = "a name of at most 63 lower-case letters"

_REFUSED: list[tuple[object, Values, str, str]] = [
    ("reservation", {}, "capacity.name", "a value, got nothing; add slices.trillium.capacity.name"),
    ("flex-start", {}, "capacity.max_run_hours", "got nothing; add slices.trillium.capacity.max_run_hours"),
    ("cheap", {}, "capacity", "one of 'on-demand', 'spot', 'reservation', 'flex-start', 'queued', got 'cheap'; write"),
    (7, {}, "capacity", "got 7; change slices.trillium.capacity"),
    ({"name": "chips"}, {}, "capacity.kind", "got nothing; add slices.trillium.capacity.kind"),
    ({**FLEX, "max_run_hour": 1}, {}, "capacity.max_run_hour", "rename it to max_run_hours"),
    ({**FLEX, "max_run_hours": 0.1}, {}, "capacity.max_run_hours", f"{OUTSIDE}, the run times that Compute Engine"),
    ({**FLEX, "max_run_hours": 169}, {}, "capacity.max_run_hours", "got 169"),
    ({**QUEUED, "max_run_hours": float("inf")}, {}, "capacity.max_run_hours", "a finite number, got inf"),
    ({**RESERVED, "name": "projects/p/reservations/r"}, {}, "capacity.name", NAME),
    ({**RESERVED, "project": "p" * 31}, {}, "capacity.project", "a name of at most 30 lower-case letters"),
    ({**RESERVED, "sub_block": "s"}, IRONWOOD, "capacity", "a block that contains the sub_block"),
    (IN_BLOCK, CUBES, "capacity", "only those of 7x have blocks, got a block for v5p; remove block"),
    (IN_PART, IRONWOOD, "capacity.sub_block", "64 chips of a sub_block, got 128 chips (2 x 4x4x4); remove sub_block,"),
    (IN_BLOCK, IRONWOOD | {"count": 145}, "capacity.block", "the 9216 chips of a block, got 9280 chips (145 x 4x4x4)"),
    (
        FLEX,
        {"generation": "v4", "topology": "4x4x4"},
        "capacity",
        "since Compute Engine offers flex-start only for v5p, v6e, 7x, got flex-start for v4; write spot, or choose v5p"
        " 4x4x4",
    ),
    (FLEX, {"generation": "v5e", "topology": "4x4"}, "capacity", "for v5e; write spot, or choose v6e 4x4"),
    (QUEUED, {"generation": "v4", "topology": "2x2x1"}, "capacity", "got queued for v4; write spot"),
]


@pytest.mark.parametrize(
    ("capacity", "group", "place", "words"),
    _REFUSED,
    ids=[f"{index}-{place}" for index, (_, _, place, _) in enumerate(_REFUSED)],
)
def test_a_capacity_that_cannot_be_had_is_refused_with_the_reason(
    values: Values, capacity: object, group: Values, place: str, words: str
) -> None:
    values["slices"]["trillium"] |= {**group, "capacity": capacity}
    assert words in errors_of(values)[f"slices.trillium.{place}"]


def test_a_job_on_queued_slices_takes_one_of_them(values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = QUEUED
    errors = errors_of(values)
    assert errors.keys() == {"job.slices.count"}
    assert re.search("1, since trillium is queued .*, got 2; lower it or write flex-start", errors["job.slices.count"])

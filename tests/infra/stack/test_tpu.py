"""The TPU table against the published lists, and the laws that every slice obeys."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.stack.tpu import (
    SliceShape,
    all_shapes,
    dimensions,
    interpret,
    resolve,
    shape_of,
    shapes_of_type,
)

_ROWS = list(csv.DictReader((Path(__file__).parent / "tpu-slices.csv").open()))
shapes = st.sampled_from(all_shapes())


def test_the_table_offers_exactly_the_published_slices() -> None:
    published = [(row["machine_type"], topology) for row in _ROWS for topology in row["topologies"].split()]
    assert sorted((shape.machine_type, shape.topology) for shape in all_shapes()) == sorted(published)


@pytest.mark.parametrize("row", _ROWS, ids=[row["machine_type"] for row in _ROWS])
def test_each_published_slice_has_its_label_chips_and_policy(row: dict[str, str]) -> None:
    for topology in row["topologies"].split():
        shape = shape_of(row["machine_type"], topology)
        assert (shape.generation, shape.accelerator) == (row["generation"], row["accelerator"])
        assert shape.chips_per_host == int(row["chips_per_host"])
        assert shape.devices_per_chip == int(row["devices_per_chip"])
        assert shape.workload_policy_required == (row["workload_policy"] == "yes" and shape.multi_host)


@given(shapes, st.permutations((0, 1, 2)))
def test_a_topology_in_another_order_is_answered_with_the_right_one_first(
    shape: SliceShape, order: tuple[int, ...]
) -> None:
    ours = dimensions(shape.topology)
    written = "x".join(str(ours[place]) for place in order if place < len(ours))
    if any(other.topology == written for other in all_shapes() if other.generation == shape.generation):
        return
    with pytest.raises(ValueError, match=f"'{written}' is not a topology of .*the nearest are {shape.topology}"):
        resolve(shape.generation, written)


@pytest.mark.parametrize(
    ("generation", "topology", "machine_type", "message"),
    [
        ("v6e", "3x4", None, "'3x4' is not a topology of v6e; the nearest are 2x4, 4x4, 2x2, 1x1, 4x8"),
        ("v6e", "4x4", "ct6e-standard-8t", "'4x4' is not a topology of ct6e-standard-8t; the nearest are 2x4"),
        ("v6e", "2x4", "ct5p-hightpu-4t", "is not a v6e machine type; choose one of ct6e-standard-1t"),
        ("v5p", "v5p-32", None, "'v5p-32' is not a topology; write its dimensions"),
        ("v5p", "4x4x16", None, "the nearest are 4x8x8, 4x4x12"),
        ("trillium", "4x4", None, "'trillium' is not a TPU generation; choose one of v4, v5e, v5p, v6e, 7x"),
    ],
)
def test_a_slice_that_does_not_exist_is_answered_with_those_that_do(
    generation: str, topology: str, machine_type: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(generation, topology, machine_type)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (("v6e-16", "4x4"), ("v6e", "4x4")),
        (("v6e", "v6e-16"), ("v6e", "4x4")),
        (("v5litepod-256", ""), ("v5e", "16x16")),
        (("v5litepod", "2x4"), ("v5e", "2x4")),
        (("tpu-v5-lite-podslice", "2x4"), ("v5e", "2x4")),
        (("v5p", "v5p-128"), ("v5p", "4x4x4")),
        (("tpu7x-128", ""), ("7x", "4x4x4")),
        (("ironwood", "2x2x1"), ("7x", "2x2x1")),
        (("Trillium", "2X4"), ("v6e", "2x4")),
        (("v6e", "16"), ("v6e", "4x4")),
        (("v5p", "64"), ("v5p", "4x4x4")),
        (("v6e", "17"), ("v6e", "17")),
    ],
)
def test_the_words_of_others_for_a_slice_are_understood(written: tuple[str, str], words: tuple[str, str]) -> None:
    assert interpret(*written) == words


@pytest.mark.parametrize(
    ("accelerator", "found"),
    [
        ("v6e-16", {("v6e", "4x4")}),
        ("v5e-16", {("v5e", "4x4")}),
        # The number counts TensorCores, of which each chip has two.
        ("v5p-128", {("v5p", "4x4x4")}),
        ("v4-8", {("v4", "2x2x1")}),
        ("7x-16", {("7x", "2x2x2")}),
        ("v6e-17", set()),
        ("", set()),
    ],
)
def test_googles_name_of_a_slice_is_that_of_its_shapes(accelerator: str, found: set[tuple[str, str]]) -> None:
    assert {(shape.generation, shape.topology) for shape in shapes_of_type(accelerator)} == found


@given(shapes)
def test_a_slice_is_understood_by_its_accelerator_type(shape: SliceShape) -> None:
    found = resolve(*interpret(shape.accelerator_type, ""))
    assert (found.generation, found.chips) == (shape.generation, shape.chips)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data import packing
from workloads.data.packing import Rows, mark


def packed(rows: Rows, sizes: list[int]) -> list[np.ndarray]:
    """Pack conversations of these sizes. All tokens of each are its number, and the first token is the prompt."""
    found: list[np.ndarray] = []
    for number, size in enumerate(sizes, 1):
        tokens = np.full(size, number)
        found += rows.add([mark(tokens[:1], False), mark(tokens[1:], True)])
    return [*found, *rows.rest()]


def test_a_token_is_stored_twice_with_the_mark_in_its_last_bit() -> None:
    assert mark(np.array([0, 5, 127], np.uint8), True).tolist() == [0, 10, 254]
    assert mark(np.array([0, 5, 127], np.uint8), False).tolist() == [1, 11, 255]


@given(st.lists(st.integers(1, 12), max_size=40))
def test_every_conversation_is_whole_in_one_row_or_cut_at_its_end(sizes: list[int]) -> None:
    rows = Rows(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_OPEN_ROWS", 3)
        found = packed(rows, sizes)
    assert all(len(row) == 10 for row in found)
    kept = np.concatenate([np.empty(0, np.uint32), *found])
    padding = kept == 1
    assert (np.sum(padding), rows.cut) == (rows.padding, sum(size > 10 for size in sizes))
    for number, size in enumerate(sizes, 1):
        of_rows = [row[row >> 1 == number] for row in found if np.any(row >> 1 == number)]
        (conversation,) = of_rows
        assert conversation.tolist() == [2 * number + 1] + [2 * number] * (min(size, 10) - 1)


def test_a_conversation_goes_to_the_fullest_row_with_room_for_it() -> None:
    rows = Rows(10)
    assert [len({*(row >> 1)} - {0}) for row in packed(rows, [6, 7, 3, 4])] == [2, 2]
    assert rows.padding == 0

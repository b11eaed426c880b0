"""`workloads.group.parts`: every part of a batch is computed once, whichever slices are present."""

from hypothesis import given
from hypothesis import strategies as st

from workloads.group.parts import deal, next_parts, parts_of


@given(st.integers(1, 9), st.integers(0, 50), st.data())
def test_each_part_of_a_batch_has_one_slice_that_is_present(slices: int, batch: int, data: st.DataObject):
    present = sorted(data.draw(st.sets(st.integers(0, slices - 1), min_size=1)))

    dealt = deal(parts_of(batch, slices), present, slices)

    assert [*dealt] == [*range(batch * slices, (batch + 1) * slices)]
    assert {*dealt.values()} == {*present}
    counts = [list(dealt.values()).count(one) for one in present]
    assert max(counts) - min(counts) <= 1
    assert all(dealt[batch * slices + one] == one for one in present)


def test_a_step_of_those_present_takes_one_part_for_each_of_them():
    assert next_parts(7, (0, 2)) == {7: 0, 8: 2}

"""Quantities."""

from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from infra.stack.manifests import amount, quantity


@given(st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000))
def test_a_quantity_is_the_amount_with_the_largest_suffix_that_leaves_it_whole(chips: float) -> None:
    text = quantity(chips)
    assert round(float(parse_quantity(text)), 3) == chips
    assert round(amount(text), 3) == chips
    assert not text.removesuffix("m").removesuffix("k").endswith("000")

"""Differences between stacks; the golden files hold how they are written."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.infra.difference import fields

SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, "", "a", "b"])
ELEMENTS = st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"value": SCALARS})
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(ELEMENTS, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "z.z"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES, VALUES)
def test_different_values_have_different_differences(base: Any, one: Any, other: Any) -> None:
    """Two different values always differ, so that no change of a stack is missed."""
    assume(repr(_sorted(one)) != repr(_sorted(other)))
    assert _show(base, one) != _show(base, other)
    assert fields({"value": base}, {"value": base}) == {}


def _show(base: Any, value: Any) -> str:
    return repr(fields({"value": _sorted(base)}, {"value": _sorted(value)}))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.infra.difference import difference, fields

NETWORK, SUBNET = "gcp:compute/network:Network network", "gcp:compute/subnetwork:Subnetwork nodes"
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


def test_a_resource_is_listed_with_the_fields_that_differ_by_path() -> None:
    base = {NETWORK: {"inputs": {"mtu": 8896, "tags": ["a", "b"], "labels": {"x.y/z": "1"}}}, SUBNET: {"inputs": {}}}
    other = {NETWORK: {"inputs": {"mtu": 1460, "tags": ["a", "c"], "labels": {}, "more": {"deep": True}}}}
    assert difference(base, other) == {
        "removed": [SUBNET],
        NETWORK: {
            "removed": ['inputs.labels["x.y/z"]'],
            "inputs.mtu": 1460,
            "inputs.tags[1]": "c",
            "inputs.more": {"deep": True},
        },
    }


def test_a_resource_that_only_the_other_has_is_compared_with_the_most_similar_one_of_its_type() -> None:
    base = {f"a:A {name}": {"inputs": {"x": x, "y": 1, "z": 1}} for name, x in (("first", 1), ("second", 2))}
    added = {"a:A third": {"inputs": {"x": 2, "y": 1, "z": 3}}, "b:B other": {"inputs": {"x": 2}}}
    assert difference(base, base | added) == {
        "a:A third": {"like": "second", "inputs.z": 3},
        "b:B other": {"inputs": {"x": 2}},
    }


def test_elements_of_a_list_are_identified_by_name_while_their_order_is_the_same() -> None:
    a, b, c = ({"name": name, "value": 1} for name in "abc")
    assert fields({"env": [a, b]}, {"env": [a, b | {"value": 2}, c]}) == {"env[name=b].value": 2, "env[name=c]": c}
    assert fields({"env": [a, b]}, {"env": [b]}) == {"removed": ["env[name=a]"]}
    assert fields({"env": [a, b]}, {"env": [b, c, a]}) == {"env": [b, c, a]}


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

from typing import Any

import pytest

from sandbox.providers.values import (
    UNKNOWN,
    Change,
    Secret,
    changes,
    conceal,
    has_unknown,
    merge,
    plain_object,
    prune,
    reveal,
    unknown_leaves,
    wire_object,
)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(
            {"spec": {"hosts": ["a", "b"], "size": 1}, "metadata": {"labels": {"a.b/c": "x"}}},
            {"spec": {"hosts": ["a", "c"], "size": 1}, "metadata": {"labels": {"a.b/c": "y"}}},
            {Change("spec.hosts[1]", "UPDATE"), Change('metadata.labels["a.b/c"]', "UPDATE")},
            id="leaves have the paths of the engine",
        ),
        pytest.param({}, {"a": {"b": 1}}, {Change("a", "ADD")}, id="a new block is one change"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {Change("a[1]", "DELETE")}, id="a removed item is one change"),
        pytest.param({"a": "x"}, {"a": Secret("x")}, set[Change](), id="a value that becomes secret is the same"),
        pytest.param({"a": "x"}, {"a": UNKNOWN}, {Change("a", "UPDATE")}, id="an unknown value is a change"),
    ],
)
def test_changes_are_the_differences_as_the_engine_shows_them(old: Any, new: Any, found: set[Change]) -> None:
    assert set(changes(old, new)) == found


def test_a_change_is_only_under_its_path_and_its_parents() -> None:
    change = Change("nodeConfig.taints[0].key", "UPDATE")
    assert change.is_under("nodeConfig.taints")
    assert change.is_under("nodeConfig")
    assert not change.is_under("nodeConfig.taint")


def test_secrets_are_put_back_where_the_inputs_had_them() -> None:
    like = {"password": Secret("old"), "list": [Secret("a")], "open": 1}
    live = {"password": "new", "list": ["b", "c"], "open": 2}
    assert conceal(live, like) == {"password": Secret("new"), "list": [Secret("b"), "c"], "open": 2}
    assert reveal(conceal(live, like)) == live


def test_merging_keeps_what_only_one_side_has() -> None:
    computed = {"endpoints": {"dns": {"endpoint": "x"}}, "id": "1"}
    given = {"endpoints": {"dns": {"external": True}}}
    assert merge(computed, given) == {"endpoints": {"dns": {"endpoint": "x", "external": True}}, "id": "1"}


WRITTEN = {"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1"}}}
LIVE = {
    "spec": {
        "tolerations": [{"key": "a", "effect": "NoSchedule"}, {"key": "added-by-kueue"}],
        "nodeSelector": {"x": "1", "added": "2"},
        "suspend": False,
    },
    "status": {},
}


@pytest.mark.parametrize(
    ("live", "written", "applied", "found"),
    [
        pytest.param(LIVE, WRITTEN, None, WRITTEN, id="without what defaults and controllers add"),
        pytest.param("16", 16, None, 16, id="a number as it was written"),
        pytest.param("1", "1000m", None, "1000m", id="the same quantity as it was written"),
        pytest.param("1Gi", "1024Mi", None, "1024Mi", id="the same memory as it was written"),
        pytest.param("5m0s", "5m", "5m0s", "5m", id="what the API normalised is no drift"),
        pytest.param("6m0s", "5m", "5m0s", "6m0s", id="what changed since it was applied is drift"),
        pytest.param(
            {"a": 1}, {"a": 1, "b": 2, "empty": {}}, None, {"a": 1, "empty": {}}, id="a removed field is gone"
        ),
        pytest.param(["a"], ["a", "b"], None, ["a"], id="a shortened list is drift"),
    ],
)
def test_a_live_value_is_read_as_the_program_wrote_it(live: Any, written: Any, applied: Any, found: Any) -> None:
    assert prune(live, written, applied) == found


def test_values_come_off_the_wire_as_they_went_on() -> None:
    value = {"int": 4, "float": 0.5, "flag": True, "list": [1, "x"], "secret": Secret({"key": "v"}), "later": UNKNOWN}
    assert plain_object(wire_object(value)) == value
    whole = plain_object(wire_object({"count": 4.0, "unset": None}))
    assert whole == {"count": 4}
    assert isinstance(whole["count"], int)


def test_unknown_values_are_found_inside_secrets_and_lists_and_keep_their_objects() -> None:
    assert has_unknown({"a": [Secret({"b": UNKNOWN})]})
    assert not has_unknown({"a": [Secret({"b": "known"})]})
    assert unknown_leaves({"a": {"b": "x"}, "c": "y"}) == {"a": {"b": UNKNOWN}, "c": UNKNOWN}

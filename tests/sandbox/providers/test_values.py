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


def test_changes_name_leaves_by_the_paths_of_the_engine() -> None:
    old = {"spec": {"hosts": ["a", "b"], "size": 1}, "metadata": {"labels": {"a.b/c": "x"}}}
    new = {"spec": {"hosts": ["a", "c"], "size": 1}, "metadata": {"labels": {"a.b/c": "y"}}}
    assert set(changes(old, new)) == {
        Change("spec.hosts[1]", "UPDATE"),
        Change('metadata.labels["a.b/c"]', "UPDATE"),
    }


def test_a_block_that_comes_or_goes_is_one_change() -> None:
    assert list(changes({}, {"placementPolicy": {"type": "COMPACT"}})) == [Change("placementPolicy", "ADD")]
    assert list(changes({"taints": [1, 2]}, {"taints": [1]})) == [Change("taints[1]", "DELETE")]


def test_a_value_that_becomes_secret_has_not_changed() -> None:
    assert not list(changes({"a": "x"}, {"a": Secret("x")}))


def test_an_unknown_value_is_a_change() -> None:
    assert list(changes({"a": "x"}, {"a": UNKNOWN})) == [Change("a", "UPDATE")]


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


def test_unknown_values_are_found_inside_secrets_and_lists() -> None:
    assert has_unknown({"a": [Secret({"b": UNKNOWN})]})
    assert not has_unknown({"a": [Secret({"b": "known"})]})


def test_merging_keeps_what_only_one_side_has() -> None:
    computed = {"endpoints": {"dns": {"endpoint": "x"}}, "id": "1"}
    given = {"endpoints": {"dns": {"external": True}}}
    assert merge(computed, given) == {"endpoints": {"dns": {"endpoint": "x", "external": True}}, "id": "1"}


def test_unknown_leaves_keep_the_objects() -> None:
    assert unknown_leaves({"a": {"b": "x"}, "c": "y"}) == {"a": {"b": UNKNOWN}, "c": UNKNOWN}


def test_what_defaults_and_controllers_add_is_pruned() -> None:
    written = {"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1"}}}
    live = {
        "spec": {
            "tolerations": [{"key": "a", "effect": "NoSchedule"}, {"key": "added-by-kueue"}],
            "nodeSelector": {"x": "1", "added": "2"},
            "suspend": False,
        },
        "status": {},
    }
    assert prune(live, written) == written


@pytest.mark.parametrize(("live", "written"), [("16", 16), ("1", "1000m"), ("1Gi", "1024Mi")])
def test_the_same_quantity_is_given_back_as_it_was_written(live: object, written: object) -> None:
    assert prune({"q": live}, {"q": written}) == {"q": written}


def test_what_the_api_normalised_when_it_was_applied_is_no_drift() -> None:
    assert prune({"timeout": "5m0s"}, {"timeout": "5m"}, {"timeout": "5m0s"}) == {"timeout": "5m"}
    assert prune({"timeout": "6m0s"}, {"timeout": "5m"}, {"timeout": "5m0s"}) == {"timeout": "6m0s"}


def test_a_field_removed_behind_the_programs_back_is_gone() -> None:
    assert prune({"a": 1}, {"a": 1, "b": 2, "empty": {}}) == {"a": 1, "empty": {}}


def test_a_shortened_list_is_drift() -> None:
    assert prune(["a"], ["a", "b"]) == ["a"]


def test_values_come_off_the_wire_as_they_went_on() -> None:
    value = {"int": 4, "float": 0.5, "flag": True, "list": [1, "x"], "secret": Secret({"key": "v"}), "later": UNKNOWN}
    assert plain_object(wire_object(value)) == value


def test_whole_numbers_are_integers_and_nulls_in_objects_are_unset() -> None:
    struct = wire_object({"count": 4.0, "unset": None})
    assert plain_object(struct) == {"count": 4}
    assert isinstance(plain_object(struct)["count"], int)

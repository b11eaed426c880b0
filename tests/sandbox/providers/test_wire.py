from sandbox.providers.values import UNKNOWN, Secret, plain, plain_object, wire, wire_object


def test_values_come_off_the_wire_as_they_went_on() -> None:
    value = {"int": 4, "float": 0.5, "flag": True, "list": [1, "x"], "secret": Secret({"key": "v"}), "later": UNKNOWN}
    assert plain(wire(value)) == value


def test_whole_numbers_are_integers_and_nulls_in_objects_are_unset() -> None:
    struct = wire_object({"count": 4.0, "unset": None})
    assert plain_object(struct) == {"count": 4}
    assert isinstance(plain_object(struct)["count"], int)

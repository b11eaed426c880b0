import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from workloads.call.function import pack_exception, pack_result
from workloads.call.pickling import Unpicklable, closure, never_travels, pickled


@dataclass
class Box:
    inside: Any


def refused(value: object) -> str:
    with pytest.raises(Unpicklable) as fault:
        pickled({"x": value}, value, never_travels)
    return str(fault.value)


def test_all_that_cannot_travel_is_named_at_once_by_the_way_to_it(tmp_path: Path) -> None:
    lock = threading.Lock()

    def hook() -> None:
        lock.acquire()

    with (tmp_path / "open").open("w") as file:
        assert refused({"log": file}).startswith(f"x['log'] is an open file ({file.name})")
    assert refused([1, Box(threading.Lock())]).startswith("x[1].inside is a lock")
    assert refused({"hook": hook}).startswith("x['hook']'s variable `lock` is a lock")
    assert refused(character for character in "ab").startswith("x is a generator")
    assert refused([threading.local()]).startswith("x[0]: cannot pickle '_thread._local' object")
    assert refused({"a": threading.Lock(), "b": threading.RLock()}).count("is a lock") == 2


def test_bytes_and_texts_in_memory_travel() -> None:
    assert pickled({}, [io.BytesIO(b"x"), io.StringIO("y")], never_travels)


def test_jax_arrays_come_back_as_those_of_numpy() -> None:
    import pickle

    import jax.numpy as jnp

    back = pickle.loads(pack_result({"weights": [jnp.arange(3), 1.5]}))
    assert type(back["weights"][0]).__module__ == "numpy"
    assert back["weights"][0].tolist() == [0, 1, 2]
    assert back["weights"][1] == 1.5


def test_a_result_that_is_too_large_is_refused_with_its_largest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.call.parcel.MAX_BYTES", 1 << 20)
    with pytest.raises(Unpicklable, match=r"at most 1\.0 MiB .* the largest is result\['b'\] with 2\.0 MiB"):
        pack_result({"a": b"x", "b": b"x" * (2 << 20)})


def test_a_result_that_cannot_travel_is_shown_as_far_as_a_line_does() -> None:
    with pytest.raises(
        Unpicklable, match="the function returned, but its value cannot be sent back:\nthe result"
    ) as fault:
        pack_result({"loss": 1.5, "state": threading.Lock()})
    assert "it returned {'loss': 1.5, 'state': <unlocked" in fault.value.__notes__[0]


class Picky(Exception):
    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


def test_an_exception_that_cannot_be_made_again_does_not_travel() -> None:
    assert pack_exception(ValueError("x"))
    assert pack_exception(Picky(reason="x")) is None
    assert pack_exception(ValueError(threading.Lock())) is None


def test_a_variable_that_is_not_set_yet_is_none_of_the_closure() -> None:
    def uses() -> Any:
        return early, late

    early = 1
    assert closure(uses) == {"early": 1}  # pyright: ignore[reportArgumentType]
    late = 2

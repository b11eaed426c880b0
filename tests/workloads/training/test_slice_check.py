from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE
from workloads.training import slice_check
from workloads.training.failures import BadHost, OutOfMemory, Suspect, WrongCollective
from workloads.training.runtime import HostPosition
from workloads.training.slice_check import Findings, Multiplication, check_slices, judge, wrong_products

TASK = Multiplication.of_size(16)
PRODUCT = TASK.left.astype(np.int64) @ TASK.right.astype(np.int64)


def check() -> None:
    """Run the check on two slices of four devices."""
    slices = small_job(Path("unused")).slices
    check_slices(slices, jax.devices(), HostPosition(("host-0",), 0, 2, 0), ALONE, slice_check.SIZE)


def test_orderly_devices_pass() -> None:
    check()


def test_products_of_every_size_stay_exact_on_the_device_and_on_the_host() -> None:
    for size in (*slice_check.SIZE.values(), *slice_check.QUICK_SIZE.values()):
        assert size * slice_check.largest_entry(size) ** 2 <= slice_check.EXACT
        assert size * slice_check.EXACT * slice_check.PROBES <= 2**53
    task = Multiplication.of_size(256)
    assert np.abs(task.left.astype(int)).max() == np.abs(task.right.astype(int)).max() == slice_check.largest_entry(256)


@given(st.integers(0, 15), st.integers(0, 15), st.floats(allow_subnormal=False, width=32))
def test_any_wrong_element_is_found(row: int, column: int, value: float) -> None:
    spoilt = PRODUCT.astype(np.float32)
    assert TASK.wrong_rows(spoilt) == 0
    spoilt[row, column] = value
    assert TASK.wrong_rows(spoilt) == int(value != PRODUCT[row, column])


def test_a_device_that_multiplies_wrongly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = slice_check.products

    def spoilt(*given: Any) -> Iterator[tuple[str, np.ndarray]]:
        return ((name, product + (name == "device 5")) for name, product in real(*given))

    monkeypatch.setattr(slice_check, "products", spoilt)
    with pytest.raises(BadHost, match="host host-0 of slice 0: device 5 multiplied 256 x 256 integers, and 256 rows"):
        check()


@pytest.mark.parametrize("handed_out", [0, 1])
def test_a_device_that_cannot_compute_or_hand_out_its_product_is_a_bad_host_and_one_that_is_full_is_not(
    monkeypatch: pytest.MonkeyPatch, handed_out: int
) -> None:
    def fails(*_: Any) -> Iterator[tuple[str, np.ndarray]]:
        yield from [("device 0", np.zeros((256, 256), np.float32))] * handed_out
        raise jax.errors.JaxRuntimeError(status)

    monkeypatch.setattr(slice_check, "products", fails)
    status = "INTERNAL: the core halted\nmore"
    assert wrong_products(jax.devices(), slice_check.SIZE) == (
        "its devices cannot multiply: INTERNAL: the core halted",
    )
    status = "RESOURCE_EXHAUSTED: no room"
    with pytest.raises(OutOfMemory, match="something else fills it .RESOURCE_EXHAUSTED: no room"):
        wrong_products(jax.devices(), slice_check.SIZE)


@pytest.mark.parametrize(
    ("which", "kind", "collective"),
    [
        (0, BadHost, "a sum over its slice"),
        (1, BadHost, "a gathering from its slice"),
        (2, WrongCollective, "a sum over all slices"),
    ],
)
def test_a_wrong_collective_is_reported_with_who_saw_it(
    monkeypatch: pytest.MonkeyPatch, which: int, kind: type[Exception], collective: str
) -> None:
    real = slice_check.collectives

    def spoilt(*given: Any) -> tuple[jax.Array, ...]:
        results = [*real(*given)]
        results[which] = results[which].at[0, 0, 7].add(1)
        return tuple(results)

    monkeypatch.setattr(slice_check, "collectives", spoilt)
    with pytest.raises(kind, match=f"host-0 of slice 0 saw: {collective} with 1 wrong numbers at device 0; "):
        check()


def test_all_hosts_at_fault_are_known() -> None:
    with pytest.raises(BadHost, match="host b of slice 1: x; host c of slice 2: x and 1 more$") as stop:
        judge([Findings("a", 0), Findings("b", 1, own=("x",)), Findings("c", 2, own=("x", "y"))])
    assert stop.value.suspects == {Suspect(1, "b"), Suspect(2, "c")}
    assert stop.value.slices == {1, 2}

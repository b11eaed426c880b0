"""Sums and transfers between hosts of several slices, over real connections."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.group.slices import BFLOAT16, FLOAT32, network, plain_sum, slices, vectors
from workloads.group.exchange import Exchange, Traffic
from workloads.group.frames import Aborted, Damaged, Disagreement

LARGE = 700_001
"""Elements of a vector that every lane of three slices sees several blocks of."""
NOTICED_SECONDS = 0.2


def assert_all(results: dict[int, np.ndarray], expected: np.ndarray) -> None:
    for name, result in results.items():
        assert result.tobytes() == expected.tobytes(), f"slice {name} has another sum"


@pytest.mark.parametrize("wire", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("names", [(0, 1), (0, 1, 2), (0, 2, 3, 5, 9)], ids=str)
def test_all_slices_have_the_sum_of_all_parts_in_their_order(names: Sequence[int], wire: np.dtype) -> None:
    with slices(*names) as hosts:
        for step, size in enumerate((0, 1, 2, 3, 63, 65, 999, LARGE)):
            parts = vectors(size, wire, len(names))
            assert_all(hosts.sums(step, parts, names), plain_sum(parts))


@settings(max_examples=25)
@given(data=st.data())
def test_the_sum_is_the_same_whoever_holds_which_part(data: st.DataObject) -> None:
    wire = data.draw(st.sampled_from([FLOAT32, BFLOAT16]))
    parts = vectors(data.draw(st.integers(0, 1 << data.draw(st.integers(0, 17)))), wire, data.draw(st.integers(1, 7)))
    names = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True))
    streams = data.draw(st.integers(1, 5))
    with slices(*names, streams=streams) as hosts:
        for step in range(2):
            holders = data.draw(st.lists(st.sampled_from(names), min_size=len(parts), max_size=len(parts)))
            assert_all(hosts.sums(step, parts, holders), plain_sum(parts))


@pytest.mark.parametrize("wire", [FLOAT32, BFLOAT16], ids=str)
def test_infinite_and_undefined_numbers_are_summed_as_any_others(wire: np.dtype) -> None:
    edge = np.array([np.inf, -np.inf, np.nan, -0.0, 3.3e38, 1e-40, 1.0], np.float32)
    parts = [np.repeat(edge, edge.size).astype(wire), np.tile(edge, edge.size).astype(wire)]
    with slices(0, 1) as hosts, np.errstate(all="ignore"):
        assert_all(hosts.sums(0, parts, (0, 1)), plain_sum(parts))


@pytest.mark.parametrize("names", [(0, 1), (0, 1, 2, 3)], ids=str)
def test_a_host_sends_and_receives_no_more_than_in_a_ring(names: Sequence[int]) -> None:
    parts = vectors(LARGE, BFLOAT16, len(names))
    with slices(*names) as hosts:
        results = hosts.all(lambda name: hosts.sum(name, 0, parts, names))
    of_a_ring = 2 * (len(names) - 1) / len(names) * parts[0].nbytes
    for _, traffic in results.values():
        assert of_a_ring <= traffic.sent_bytes < 1.01 * of_a_ring
        assert of_a_ring <= traffic.received_bytes < 1.01 * of_a_ring


def test_a_host_knows_how_long_it_waited_and_for_which_slice() -> None:
    parts = vectors(1000, FLOAT32, 3)
    with slices(0, 1, 2) as hosts:

        def late(name: int) -> Traffic:
            time.sleep(0.3 * (name == 1))
            return hosts.sum(name, 0, parts, (0, 1, 2))[1]

        waited = hosts.all(late)
    assert [waited[0].last, waited[2].last] == [1, 1]
    assert waited[0].waited_seconds > 0.25
    assert waited[1].waited_seconds < 0.1


def test_a_slice_may_begin_the_next_step_before_the_others() -> None:
    first, second = vectors(LARGE, FLOAT32, 2), vectors(LARGE, BFLOAT16, 2)
    with slices(0, 1) as hosts, ThreadPoolExecutor(1) as ahead:
        hosts.sums(0, first, (0, 1))
        early = ahead.submit(hosts.sum, 1, 1, second, (0, 1))
        time.sleep(0.1)
        assert not early.done()
        late, _ = hosts.sum(0, 1, second, (0, 1))
        assert_all({0: late, 1: early.result()[0]}, plain_sum(second))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.55, 0.8, 0.99])
def test_a_cut_in_any_phase_is_noticed_at_once_and_the_next_view_sums_right(share: float) -> None:
    parts = vectors(LARGE, FLOAT32, 3)
    # Slice 2 sends a third of its part to slice 0 in the first half, and a third of the sum in the second.
    cut_after = int(share * 2 / 3 * parts[0].nbytes)
    with slices(0, 1, 2) as hosts:
        with network(hosts.links[0].address, cut_after=cut_after) as cut:
            hosts.view((0, 1, 2), through={0: cut.address})

            begun = time.monotonic()

            def ends(name: int) -> float:
                with pytest.raises(Aborted) as caught:
                    hosts.sum(name, 0, parts, (0, 1, 2))
                assert caught.value.lost
                return time.monotonic()

            ended = hosts.all(ends)
            assert cut.cut_at
            assert max(ended.values()) - max(cut.cut_at, begun) < NOTICED_SECONDS
        hosts.leave(2)
        hosts.view((0, 1))
        assert_all(hosts.sums(0, parts, (0, 1, 0)), plain_sum(parts))


def test_a_slice_that_is_gone_before_it_is_connected_is_noticed_at_once_by_all() -> None:
    parts = vectors(1000, FLOAT32, 3)
    for gone in (0, 1, 2):
        with slices(0, 1, 2) as hosts:
            addresses = {name: links.address for name, links in hosts.links.items()}
            hosts.leave(gone)
            left = [name for name in (0, 1, 2) if name != gone]
            hosts.view(left, through=addresses)
            began = time.monotonic()

            def ends(name: int) -> None:
                with pytest.raises(Aborted):
                    hosts.sum(name, 0, parts, (0, 1, 2))  # noqa: B023 - it is called in the loop

            hosts.all(ends)
            assert time.monotonic() - began < NOTICED_SECONDS


def test_a_slice_that_leaves_between_two_sums_is_known_as_lost() -> None:
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1) as hosts:
        hosts.sums(0, parts, (0, 1))
        assert not hosts.exchanges[0].lost
        hosts.leave(1)
        _wait_until(lambda: 1 in hosts.exchanges[0].lost)
        with pytest.raises(Aborted, match="slice 1"):
            hosts.sum(0, 1, parts, (0, 1))
        with pytest.raises(Aborted, match="closed"):
            hosts.sum(0, 2, parts, (0, 1))


def test_a_slice_that_has_the_sum_may_leave_while_others_still_add() -> None:
    parts = vectors(LARGE, FLOAT32, 3)
    with slices(0, 1, 2) as hosts:

        def leaves(name: int) -> np.ndarray:
            result, _ = hosts.sum(name, 0, parts, (0, 1, 2))
            hosts.exchanges[name].close()
            return result

        assert_all(hosts.all(leaves), plain_sum(parts))


@pytest.mark.parametrize("waits", [(0, 1), (0,)], ids=["in a sum", "for a peer that does not take part"])
def test_a_sum_ends_when_it_is_stopped(waits: Sequence[int]) -> None:
    # More than the buffers of the kernel hold, so that sending blocks.
    part, outs = np.zeros(8_000_000, np.float32), [np.zeros(8_000_000, np.float32) for _ in waits]
    with slices(0, 1) as hosts, ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(hosts.exchanges[name].sum, 0, {name: part}, {0: 0, 1: 1}, FLOAT32, out, hosts.stops[name])
            for name, out in zip(waits, outs, strict=True)
        ]
        time.sleep(0.01)
        assert not any(each.done() for each in running)
        stopped = time.monotonic()
        for stop in hosts.stops.values():
            stop.set()
        for each in running:
            with pytest.raises(Aborted):
                each.result()
        assert time.monotonic() - stopped < NOTICED_SECONDS


def test_a_damaged_byte_is_noticed_in_sums_and_transfers() -> None:
    parts = vectors(LARGE, FLOAT32, 2)
    # The first is in a content. The others are in the head of the first frame, after a greeting of 44 bytes.
    for damage_at in (200_000, 44, 44 + 20):
        with slices(0, 1, streams=1) as hosts, network(hosts.links[0].address, damage_at=damage_at) as damaging:
            hosts.view((0, 1), through={0: damaging.address})
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(hosts.sum, 1, 0, parts, (0, 1))
                # It is noticed whether or not this slice has begun.
                time.sleep(0.05 * (damage_at == 44))
                with pytest.raises(Damaged, match="slice 1"):
                    hosts.sum(0, 0, parts, (0, 1))
                assert isinstance(other.exception(), Aborted)
    with slices(0, 1) as hosts, network(hosts.links[0].address, damage_at=2_000_000) as damaging:
        hosts.view((0, 1), through={0: damaging.address})
        with ThreadPoolExecutor(1) as pool:
            stop = hosts.stops[1]
            pool.submit(hosts.exchanges[1].send_arrays, "state", 0, parts, stop)
            with pytest.raises(Damaged, match="slice 1"):
                hosts.exchanges[0].receive_arrays("state", 1, [np.empty_like(each) for each in parts], stop)


def test_arrays_of_all_types_and_shapes_arrive_while_others_wait_to_sum() -> None:
    arrays = [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array(1.5, np.float32),
        np.empty((0, 4), np.float32),
        np.arange(3_000_000, dtype=np.float32).astype(ml_dtypes.bfloat16),
        np.array([True, False]),
    ]
    parts = vectors(1000, FLOAT32, 3)
    with slices(0, 1, 2) as hosts:
        received = [np.zeros_like(each) for each in arrays]

        def joins(name: int) -> np.ndarray:
            exchange, stop = hosts.exchanges[name], hosts.stops[name]
            if name == 0:
                assert exchange.send_arrays("state", 2, arrays, stop).sent_bytes > arrays[3].nbytes
            if name == 2:
                assert exchange.receive_arrays("state", 0, received, stop).last == 0
            return hosts.sum(name, 7, parts, (0, 1, 2))[0]

        assert_all(hosts.all(joins), plain_sum(parts))
    assert [each.tobytes() for each in received] == [each.tobytes() for each in arrays]


def test_hosts_that_do_not_do_the_same_are_refused() -> None:
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1) as hosts:

        def differs(name: int) -> type[Exception]:
            with pytest.raises((Aborted, Disagreement)) as caught:
                hosts.sum(name, 0, [each[: 1000 - name] for each in parts], (0, 1))
            return caught.type

        # The other one may see only that its peer is gone.
        assert Disagreement in hosts.all(differs).values()


def test_arguments_that_do_not_fit_are_named_together_and_change_nothing() -> None:
    parts, stop = vectors(10, FLOAT32, 2), threading.Event()
    with slices(0, 1) as hosts:
        with pytest.raises(
            ValueError, match=r"(?s)part 1.*holds the parts \[0\].*not all in the slices.*float16.*result"
        ):
            hosts.exchanges[0].sum(0, {1: parts[1]}, {0: 0, 1: 9}, np.dtype(np.float16), np.zeros(10), stop)
        with pytest.raises(ValueError, match="not contiguous"):
            hosts.exchanges[0].send_arrays("state", 1, [parts[0][::2]], stop)
        with pytest.raises(ValueError, match="no other slice"):
            hosts.exchanges[0].send_arrays("state", 0, parts, stop)
        assert_all(hosts.sums(3, parts, (0, 1)), plain_sum(parts))
        with pytest.raises(ValueError, match="step 3 comes after step 3"):
            hosts.sum(0, 3, parts, (0, 1))
        with pytest.raises(ValueError, match="not in view"):
            Exchange(hosts.links[0], {1: hosts.links[1].address}, 9)


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)

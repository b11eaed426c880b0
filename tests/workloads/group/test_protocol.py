"""`workloads.group.protocol`: no order of messages, losses and returns makes two hosts finish a round differently."""

import random
from dataclasses import asdict

import pytest

from tests.workloads.group.network import World, explore
from workloads.group.protocol import TRIES, Begin, Decided, Hello, Leader, Member, Ready
from workloads.group.view import STORAGE, HostId, View


@pytest.mark.costs(cpu_seconds=40)
@pytest.mark.parametrize(
    ("slices", "limits"),
    [
        (2, {"rounds": 2, "crashes": 1, "cuts": 0, "returns": 1}),
        (3, {"rounds": 1, "crashes": 2, "cuts": 0, "returns": 0}),
        (2, {"rounds": 2, "crashes": 0, "cuts": 1, "returns": 0}),
        (2, {"rounds": 1, "crashes": 1, "cuts": 0, "returns": 1, "damages": TRIES}),
    ],
)
def test_every_order_of_events_ends_with_all_slices_in_one_view(slices: int, limits: dict[str, int]):
    explored = explore(World.begun(slices, **limits))

    assert explored.settled
    assert not explored.stuck


@pytest.mark.complete
@pytest.mark.parametrize(
    ("slices", "limits"),
    [
        (3, {"rounds": 1, "crashes": 1, "cuts": 0, "returns": 1}),
        (3, {"rounds": 1, "crashes": 0, "cuts": 1, "returns": 0}),
        (3, {"rounds": 2, "crashes": 2, "cuts": 0, "returns": 0}),
    ],
)
def test_every_order_of_events_of_three_slices_ends_with_all_in_one_view(slices: int, limits: dict[str, int]):
    explored = explore(World.begun(slices, **limits))

    assert explored.settled
    assert not explored.stuck


@pytest.mark.parametrize("seed", range(40))
def test_four_slices_with_many_faults_never_finish_a_round_differently(seed: int):
    chance = random.Random(seed)
    world = World.begun(4, rounds=6, crashes=4, cuts=1, returns=4, damages=4)

    for _ in range(600):
        events = [*world.events()]
        if not events:
            break
        # Faults are rarer than everything else, so that rounds are finished between them.
        usual = [event for event in events if event[0] not in ("crash", "cut")]
        world.apply(chance.choice(usual if usual and chance.random() < 0.95 else events))


HOSTS = [HostId(one, worker) for one in (0, 1) for worker in (0, 1)]
VIEW = View(1, (0, 1), 0)


def leader(finished: int = 3) -> Leader:
    """Return the leader of two slices of two hosts."""
    leading = Leader(HOSTS[0], 2, VIEW, set(), lambda values: {"hosts": len(values)}, view=VIEW, finished=finished)
    leading.hosts = {host: Hello(host, 1, finished, None, None) for host in HOSTS}
    return leading


def test_a_round_is_decided_when_every_host_of_every_slice_is_ready():
    leading = leader()

    first = [leading.listen(Ready(host, 1, 4, {}, holds=True)) for host in HOSTS[:3]]

    assert first == [None, None, None]
    assert leading.listen(Ready(HOSTS[3], 1, 4, {}, holds=True)) == Decided(1, 4, {"hosts": 4})


def test_one_lost_host_removes_its_whole_slice():
    leading = leader()

    leading.lose(HOSTS[3])

    assert leading.propose() == View(2, (0,), 0)


def test_a_slice_joins_when_all_of_its_hosts_ask_for_it():
    leading = leader()
    leading.lose(HOSTS[2])
    leading.lose(HOSTS[3])
    leading.propose()
    leading.register(first=True)

    leading.hear(Hello(HOSTS[2], 0, None, None, None))
    assert leading.propose() is None
    leading.hear(Hello(HOSTS[3], 0, None, None, None))

    assert leading.propose() == View(3, (0, 1), 0, {1: 0})


def test_a_slice_asks_every_other_slice_twice_before_it_gets_the_state_through_storage():
    view = View(1, (0, 1), 0)
    leading = Leader(HostId(0, 0), 1, view, set(), lambda _: {}, view=view, finished=3)
    leading.hosts = {HostId(one, 0): Hello(HostId(one, 0), 1, 3, None, None) for one in (0, 1)}
    joining, asked = Member(HostId(2, 0)), list[int]()

    while STORAGE not in asked:
        leading.hear(joining.hello)
        leading.propose()
        begin = leading.register(first=True)
        assert begin
        asked.append(begin.view.donors[2])
        joining.refuse(asked[-1])
        leading.lose(HostId(2, 0))
        leading.propose()
        leading.register(first=True)

    assert sorted(asked[:2]) == sorted(asked[2:4]) == [0, 1]
    assert asked[4:] == [STORAGE]


def test_a_slice_with_a_state_forgets_which_it_has_refused():
    joined = Member(HostId(2, 0), refused=(0, 1))

    joined.receive_state(4, None)

    assert joined.hello.refused == ()


def test_no_slice_joins_while_states_differ():
    leading = leader()
    leading.decide = lambda values: {"open": False}
    leading.lose(HOSTS[2])
    leading.lose(HOSTS[3])
    leading.propose()
    leading.register(first=True)
    for host in HOSTS[:2]:
        leading.listen(Ready(host, 2, 4, {}, holds=True))

    for host in HOSTS[2:]:
        leading.hear(Hello(host, 0, None, None, None))

    assert leading.propose() is None


def test_a_leader_whose_own_slice_loses_a_host_resigns():
    leading = leader()

    leading.lose(HOSTS[1])

    assert leading.propose() is None
    assert leading.resigned


def test_a_leader_that_ends_while_it_registers_a_view_resigns():
    leading = leader()
    leading.lose(HOSTS[3])
    leading.propose()

    for host in HOSTS[:3]:
        leading.lose(host)

    assert leading.register(first=True) is None
    assert leading.resigned


def test_a_round_that_one_survivor_has_finished_is_finished_by_all():
    view = View(1, (0, 1, 2), 0)
    candidate = Leader(HostId(1, 0), 1, view, {1, 2}, lambda _: {})
    held = Ready(HostId(1, 0), 1, 4, {}, holds=True)
    candidate.hear(Hello(HostId(1, 0), 1, 3, None, held))
    candidate.hear(Hello(HostId(2, 0), 1, 4, {"save": True}, None))

    assert candidate.propose() == View(2, (1, 2), 1)
    begin = candidate.register(first=True)

    assert begin == Begin(View(2, (1, 2), 1), 4, {"save": True})
    assert begin
    behind = Member(HostId(1, 0), view, 3, None, held)
    assert behind.begin(begin)
    assert behind.decision == {"save": True}


def test_a_round_that_not_all_survivors_hold_is_repeated():
    view = View(1, (0, 1, 2), 0)
    candidate = Leader(HostId(1, 0), 1, view, {1, 2}, lambda _: {})
    held = Ready(HostId(1, 0), 1, 4, {}, holds=True)
    candidate.hear(Hello(HostId(1, 0), 1, 3, None, held))
    candidate.hear(Hello(HostId(2, 0), 1, 3, None, None))
    candidate.propose()

    begin = candidate.register(first=True)

    assert begin == Begin(View(2, (1, 2), 1), 3, None)
    assert begin
    member = Member(HostId(1, 0), view, 3, None, held)
    assert not member.begin(begin)
    assert member.ready is None


def test_a_host_that_is_not_in_the_newest_view_has_no_state_that_counts():
    member = Member(HostId(2, 0), VIEW, 5, None, None)

    member.learn(View(2, (0, 1), 0), included=False)

    assert asdict(member.hello) == asdict(Hello(HostId(2, 0), 0, None, None, None))

"""`workloads.group.control`: slices find each other, finish rounds together, lose each other and come back."""

import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any

import pytest
from etils import epath

from workloads.group.control import Control, GroupSize, Now, Outside, SliceBroken, ViewChanged
from workloads.group.view import STORAGE, Endpoint, HostId, Register, View

type Given = dict[tuple[int, int], set[HostId]]

SECONDS = 20.0


class _KilledError(Exception):
    """Ends a host without letting the others go first."""


class Host(threading.Thread):
    """A host that finishes rounds until it is stopped. Contributions of all hosts are in `given`."""

    def __init__(self, storage: Path, me: HostId, size: GroupSize, own: dict[HostId, Endpoint], given: Given):
        super().__init__(daemon=True)
        listener = socket.create_server(("127.0.0.1", int(own[me].control.rpartition(":")[2])))
        register = Register(epath.Path(storage), "run", 0)
        self.address = own[me].control
        self.me, self.given, self.per_slice = me, given, size.hosts_per_slice
        self.control = Control(register, me, size, own, listener, lambda values: {"hosts": len(values)})
        self.rounds: list[tuple[int, View, float]] = []
        self.founded = False
        self.refuses = False
        """Whether states of other slices arrive damaged at this host."""
        self.donors: list[int] = []
        """Donors of the states that this host was to get."""
        self.ends = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self.control:
                while not self.ends.is_set():
                    try:
                        self._train()
                    except Outside:
                        continue
                raise _KilledError
        except _KilledError:
            pass
        except Exception as error:
            # A host whose slice ends is told that another host of it has ended.
            if not (isinstance(error, SliceBroken) and self.ends.is_set()):
                self.error = error

    def _train(self) -> None:
        self.founded = self.control.enter(SECONDS)
        if self.founded:
            self.control.has_state()
        while not self.ends.is_set():
            now = self.control.now(SECONDS)
            finished = now.finished
            if now.needs_state:
                donor = now.view.donors[self.me.slice]
                self.donors.append(donor)
                if self.refuses and donor != STORAGE:
                    self.control.refuse_state(now.view)
                    break
                self.control.has_state()
            try:
                while not self.ends.is_set():
                    if not self._sum(now, finished + 1):
                        break
                    self.control.finish(now, {}, holds=True, seconds=4)
                    finished += 1
                    self.rounds.append((finished, now.view, time.monotonic()))
            except ViewChanged:
                continue
            except TimeoutError:
                # In a test that ends below the fewest slices.
                if not self.ends.is_set():
                    raise

    def _sum(self, now: Now, number: int) -> bool:
        self.given.setdefault((now.view.number, number), set()).add(self.me)
        while self.given[now.view.number, number] != {*now.view.hosts(self.per_slice)}:
            if self.control.changed.wait(0.005) or self.ends.is_set():
                return False
        time.sleep(0.01)
        return True

    def stop(self) -> None:
        self.ends.set()
        self.join(5)


class Group:
    """Hosts on loopback."""

    def __init__(self, storage: Path, slices: int, hosts_per_slice: int = 1, fewest: int = 1):
        self.storage, self.size = storage, GroupSize(slices, hosts_per_slice, fewest, wait_seconds=SECONDS)
        self.given: Given = {}
        self.hosts: dict[HostId, Host] = {}
        self._all: list[Host] = []

    def start(self, one: int, refuses: bool = False) -> None:
        own = {HostId(one, worker): self._endpoint() for worker in range(self.size.hosts_per_slice)}
        for me in own:
            self.hosts[me] = Host(self.storage, me, self.size, own, self.given)
            self.hosts[me].refuses = refuses
            self.hosts[me].start()
            self._all.append(self.hosts[me])

    def stop(self, *ones: int) -> None:
        """End slices at the same moment."""
        ending = [self.hosts.pop(me) for me in [*self.hosts] if me.slice in ones]
        for host in ending:
            host.ends.set()
        for host in ending:
            host.stop()

    @property
    def errors(self) -> dict[HostId, Exception]:
        """Errors of hosts that were not stopped, or that ended otherwise than because they were."""
        return {host.me: host.error for host in self._all if host.error}

    def _endpoint(self) -> Endpoint:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return Endpoint(secrets.token_hex(4), f"127.0.0.1:{port}", "127.0.0.1:1")

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not holds():
            assert not self.errors
            assert time.monotonic() < end, {me: host.rounds[-1:] for me, host in self.hosts.items()}
            time.sleep(0.01)

    def train_together(self, slices: set[int], rounds: int = 3) -> None:
        """Wait until these slices have finished some rounds in one view."""
        from_here = {me: len(host.rounds) for me, host in self.hosts.items()}

        def done() -> bool:
            mine = {me: host.rounds[from_here[me] :] for me, host in self.hosts.items()}
            return all(sum({*view.slices} == slices for _, view, _ in each) >= rounds for each in mine.values())

        self.until(done)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(slices: int, hosts_per_slice: int = 1, fewest: int = 1) -> Group:
        made.append(Group(tmp_path, slices, hosts_per_slice, fewest))
        for one in range(slices):
            made[0].start(one)
        return made[0]

    yield make
    for each in made:
        each.stop(*range(each.size.slices))
        assert not each.errors


@pytest.mark.parametrize(("slices", "hosts_per_slice"), [(2, 1), (3, 1), (2, 2)])
def test_slices_that_start_together_train_together(group: Callable[..., Group], slices: int, hosts_per_slice: int):
    started = group(slices, hosts_per_slice)

    started.train_together({*range(slices)})

    assert sum(host.founded for host in started.hosts.values()) == hosts_per_slice


class _Hesitant(socket.socket):
    """A connection whose host does other things between what it says and what it hears."""

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        super().sendall(data, flags)
        if b"Introduction" in data:
            time.sleep(0.3)


def test_what_the_leader_says_together_with_its_welcome_is_heard(
    group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
):
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *to: _Hesitant(fileno=connect(*to).detach()))
    group(2).train_together({0, 1})


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_others_go_on_without_a_lost_slice_and_with_it_when_it_is_back(group: Callable[..., Group], lost: int):
    started = group(3)
    started.train_together({0, 1, 2})

    started.stop(lost)
    started.train_together({0, 1, 2} - {lost})
    started.start(lost)
    started.train_together({0, 1, 2})

    others = [host for me, host in started.hosts.items() if me.slice != lost]
    numbers = [[number for number, _, _ in host.rounds] for host in others]
    assert numbers == [[*range(1, len(each) + 1)] for each in numbers]
    pauses = [after - before for host in others for (_, _, before), (_, _, after) in pairwise(host.rounds)]
    assert max(pauses) < 1.0


def test_two_slices_lost_at_once_leave_the_third_training(group: Callable[..., Group]):
    started = group(3)
    started.train_together({0, 1, 2})

    started.stop(0, 1)

    started.train_together({2})


def test_below_the_fewest_slices_nobody_trains_until_one_is_back(group: Callable[..., Group]):
    started = group(2, fewest=2)
    started.train_together({0, 1})

    started.stop(0)
    remaining = started.hosts[HostId(1, 0)]
    time.sleep(0.5)
    done = len(remaining.rounds)
    time.sleep(0.5)
    assert len(remaining.rounds) == done
    started.start(0)

    started.train_together({0, 1})


def test_a_group_of_which_every_slice_ended_begins_again_from_a_checkpoint(group: Callable[..., Group]):
    started = group(2)
    started.train_together({0, 1})

    for one in (0, 1):
        started.stop(one)
    for one in (0, 1):
        started.start(one)

    started.train_together({0, 1})
    assert any(host.founded for host in started.hosts.values())


@pytest.mark.parametrize("hosts_per_slice", [1, 2])
def test_a_slice_that_refuses_the_states_of_all_others_gets_it_through_storage(
    group: Callable[..., Group], hosts_per_slice: int
):
    started = group(3, hosts_per_slice)
    started.train_together({0, 1, 2})

    started.stop(1)
    started.train_together({0, 2})
    started.start(1, refuses=True)
    started.train_together({0, 1, 2})

    donors = [started.hosts[HostId(1, worker)].donors for worker in range(hosts_per_slice)]
    # One host of a slice may refuse a state before the other has looked at its view.
    assert reduce(or_, map(Counter, donors)) == {0: 2, 2: 2, STORAGE: 1}
    assert {each[-1] for each in donors} == {STORAGE}


def test_garbage_on_the_port_disturbs_nobody(group: Callable[..., Group]):
    started = group(2)
    started.train_together({0, 1})

    for host in started.hosts.values():
        address, port = host.address.split(":")
        with socket.create_connection((address, int(port))) as stranger:
            stranger.sendall(b'GET / HTTP/1.1\r\n\r\n{"kind": "Ready"}\n\xff\xfe\n')

    views = {host.rounds[-1][1].number for host in started.hosts.values()}
    started.train_together({0, 1})
    assert {host.rounds[-1][1].number for host in started.hosts.values()} == views

"""One host of each of several slices in this process, and a network between them that can cut and damage."""

import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import ml_dtypes
import numpy as np

from workloads.group.exchange import Exchange, Traffic
from workloads.group.links import Links

FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)

LONGEST_SECONDS = 30.0
"""Time after which sums are stopped, so that their test fails."""


def vectors(size: int, wire: np.dtype, parts: int) -> list[np.ndarray]:
    """Vectors whose sum depends on the order of its terms."""
    random = np.random.default_rng(size + parts)
    return [
        (random.standard_normal(size) * 10.0 ** random.integers(-6, 6, size)).astype(np.float32).astype(wire)
        for _ in range(parts)
    ]


def plain_sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    """What every slice must have, bit for bit."""
    total = parts[0].astype(np.float32)
    for part in parts[1:]:
        total = total + part.astype(np.float32)
    return total.astype(parts[0].dtype).astype(np.float32)


class Slices:
    """Hosts of several slices, each with its links and the exchange of the current view."""

    def __init__(self, names: Sequence[int], streams: int, address: str):
        self.links = {name: Links(name, address, "group", streams) for name in names}
        self.exchanges = dict[int, Exchange]()
        self.stops = dict[int, threading.Event]()
        self._views = count()

    def view(self, names: Sequence[int], through: Mapping[int, str] | None = None, pause: float = 0.0) -> None:
        """Begin the next view, with a pause after each slice; `through` are addresses of slices that are not their
        own."""
        view = next(self._views)
        peers = {name: self.links[name].address for name in names} | (dict(through) if through else {})
        for name in names:
            if name in self.exchanges:
                self.exchanges[name].close()
            self.exchanges[name] = Exchange(self.links[name], peers, view)
            self.stops[name] = threading.Event()
            time.sleep(pause)

    def sum(
        self, name: int, step: int, parts: Sequence[np.ndarray], holders: Sequence[int]
    ) -> tuple[np.ndarray, Traffic]:
        """The part of slice `name` in a sum, in which slice `holders[k]` holds part k."""
        out = np.full(parts[0].size, np.nan, np.float32)
        own = {part: parts[part] for part, holder in enumerate(holders) if holder == name}
        exchange, stop = self.exchanges[name], self.stops[name]
        traffic = exchange.sum(step, own, dict(enumerate(holders)), parts[0].dtype, out, stop)
        return out, traffic

    def sums(self, step: int, parts: Sequence[np.ndarray], holders: Sequence[int]) -> dict[int, np.ndarray]:
        """The results of all slices of the view."""
        results = self.all(lambda name: self.sum(name, step, parts, holders))
        return {name: out for name, (out, _) in results.items()}

    def all[T](self, deed: Callable[[int], T]) -> dict[int, T]:
        """Do something as each slice of the view at the same time."""
        with ThreadPoolExecutor(len(self.exchanges)) as pool:
            pending = {name: pool.submit(deed, name) for name in self.exchanges}
            return {name: each.result() for name, each in pending.items()}

    def stop(self) -> None:
        """Stop all sums."""
        for stop in self.stops.values():
            stop.set()

    def leave(self, name: int) -> None:
        """Close everything that a slice has, as when its process ends."""
        self.exchanges.pop(name).close()
        self.links.pop(name).close()

    def close(self) -> None:
        for exchange in self.exchanges.values():
            exchange.close()
        for links in self.links.values():
            links.close()


@contextmanager
def slices(*names: int, streams: int = 2, address: str = "127.0.0.1") -> Generator[Slices]:
    """Hosts of these slices, in a view of all of them. Nothing of them may be left afterwards."""
    threads, descriptors = threading.active_count(), open_descriptors()
    hosts = Slices(names, streams, address)
    # A sum that does not end would wait forever.
    end = threading.Timer(LONGEST_SECONDS, hosts.stop)
    try:
        hosts.view(names)
        end.start()
        yield hosts
    finally:
        end.cancel()
        end.join()
        hosts.close()
    # Those of other tests may end meanwhile.
    assert threading.active_count() <= threads
    assert open_descriptors() <= descriptors


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Network:
    """Address of a slice behind which bytes are counted, and may be changed or cut."""

    def __init__(self, target: str, cut_after: int | None = None, damage_at: int | None = None):
        """`cut_after` and `damage_at` count the bytes to the target over all connections."""
        self._target, self._cut_after, self._damage_at = target, cut_after, damage_at
        self._passed, self._lock = 0, threading.Lock()
        self._pairs = list[socket.socket]()
        self.cut_at: float | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        for each in self._pairs:
            each.close()

    def _accept(self) -> None:
        host, port = self._target.split(":")
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((host, int(port)))
            with self._lock:
                self._pairs += [near, far]
                if self.cut_at is not None:
                    self._cut()
            for source, sink, forth in (near, far, True), (far, near, False):
                thread = threading.Thread(target=self._pass, args=(source, sink, forth))
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, forth: bool) -> None:
        try:
            with suppress(OSError):
                while chunk := bytearray(source.recv(1 << 14)):
                    if forth:
                        self._count(chunk)
                    sink.sendall(chunk)
        finally:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)

    def _count(self, chunk: bytearray) -> None:
        with self._lock:
            before, self._passed = self._passed, self._passed + len(chunk)
            if self._damage_at is not None and before <= self._damage_at < self._passed:
                chunk[self._damage_at - before] ^= 0x10
            if self._cut_after is not None and self._passed >= self._cut_after and self.cut_at is None:
                self.cut_at = time.monotonic()
                self._cut()

    def _cut(self) -> None:
        for each in self._pairs:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def network(target: str, cut_after: int | None = None, damage_at: int | None = None) -> Generator[Network]:
    made = Network(target, cut_after, damage_at)
    try:
        yield made
    finally:
        made.close()

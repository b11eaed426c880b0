"""Measures sums between slices over networks of several kinds: `python -m benchmarks.slice_traffic [CASE ...]`.

One host of each slice is a process in a Linux network namespace of its own (`benchmarks.slice_network`), so the
benchmark must run as root. The case `loopback` needs no network. All processes
share this machine's cores, which one host of a slice would have to itself. Sums take turns with plain connections that
send and receive the same number of bytes and do nothing with them. Times are medians.
"""

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from workloads.group.exchange import Exchange
from workloads.group.frames import Aborted
from workloads.group.links import Links

from benchmarks.slice_network import KernelNetwork, Line, Network, UserNetwork, requirements

WARM_UP_ROUNDS, ROUNDS = 2, 7
_WIRE = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Case:
    """Slices and the network between them."""

    slices: int
    megabytes: int
    """Size of the vector of each part, in bfloat16."""
    streams: int
    line: Line | None = None
    """The loopback device if it is `None`."""

    @property
    def best_seconds(self) -> float | None:
        """Time in which a host's line could send its share of the bytes."""
        sent = 2 * (self.slices - 1) / self.slices * self.megabytes * 1e6
        return 8e-9 * sent / self.line.gigabits_per_second if self.line else None


def _over(base: Case, **changes: Sequence[Any]) -> list[Case]:
    return [replace(base, **{name: value}) for name, values in changes.items() for value in values]


_LOOPBACK, _SLOW, _FAST = Case(2, 100, 4), Line(1, 0, 0), Line(10, 0, 0)
_SLOW_LINES = [replace(_SLOW, delay_seconds=delay, loss=loss) for delay in (0.001, 0.01) for loss in (0, 0.001)]

CASES = {
    "loopback": [_LOOPBACK, *_over(_LOOPBACK, megabytes=[20], slices=[3, 4], streams=[1, 8])],
    "1gbps": _over(Case(2, 20, 4, _SLOW), megabytes=[20, 100], slices=[3, 4], streams=[1, 8]),
    "10gbps": [Case(slices, 100, 4, _FAST) for slices in (2, 3)],
    "delay": [Case(2, 20, streams, line) for line in _SLOW_LINES for streams in (1, 4, 8)],
}


class Host:
    """A process that is one host of a slice, and answers each line of JSON with another."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def send(self, **values: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(values) + "\n")
        self._process.stdin.flush()

    def read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a host has ended; its error is above")
        return json.loads(line)


@contextmanager
def hosts(case: Case, network: Network | None) -> Generator[list[Host]]:
    """Start a host of each slice, and connect them."""
    with ExitStack() as stack:
        started = list[Host]()
        for slice_ in range(case.slices):
            address = network.address(slice_) if network else "127.0.0.1"
            arguments = [str(slice_), address, str(case.streams), str(case.megabytes)]
            command = [sys.executable, "-m", "benchmarks.slice_traffic", "host", *arguments]
            if network:
                command = network.command(slice_, command)
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            started.append(Host(process))
        addresses = [each.read() for each in started]
        for each in started:
            each.send(addresses=addresses)
        yield started


def measure(case: Case) -> list[dict[str, Any]]:
    """Return what the slowest host reports of each sum, with the seconds of the plain connections."""
    network = None
    if line := case.line:
        network = (KernelNetwork if line.rate_only else UserNetwork)(case.slices, line)
    with network or nullcontext(), hosts(case, network) as started:
        found = list[dict[str, Any]]()
        for step in range(WARM_UP_ROUNDS + ROUNDS):
            slowest = dict[str, dict[str, Any]]()
            for what in ("plain", "step"):
                for each in started:
                    each.send(**{what: step})
                answers = [each.read() for each in started]
                if ended := [one["aborted"] for one in answers if "aborted" in one]:
                    sys.exit(f"{case}: {', '.join(ended)}")
                slowest[what] = max(answers, key=lambda one: one["seconds"])
            found.append(slowest["step"] | {"plain_seconds": slowest["plain"]["seconds"]})
    return found[WARM_UP_ROUNDS:]


def row(case: Case) -> str:
    """Return the row of the table for a case."""
    found = measure(case)
    seconds = sorted(one["seconds"] for one in found)
    median = statistics.median(seconds)
    plain = statistics.median(one["plain_seconds"] for one in found)
    processor = statistics.median(one["processor_seconds"] for one in found)
    sent, best = found[0]["sent_bytes"], case.best_seconds
    share = f"{best / median:.0%}, {best / plain:.0%}" if best else ""
    line = case.line
    words = "loopback"
    if line:
        words = f"{line.gigabits_per_second:g} Gb/s, {1000 * line.delay_seconds:g} ms, {line.loss:.1%} lost"
    return (
        f"| {words} | {case.slices} | {case.megabytes} | {case.streams} | {median:.3f} ({seconds[0]:.3f} to"
        f" {seconds[-1]:.3f}) | {plain:.3f} | {sent / 1e6:.1f} | {share} | {processor:.2f} |"
    )


def report_cut() -> None:
    """Cut one of three slices off during a sum, and print when the hosts notice it."""
    case = Case(3, 100, 4, _SLOW)
    network = UserNetwork(case.slices, _SLOW)
    with network, hosts(case, network) as started:
        for each in started:
            each.send(step=0)
        time.sleep(0.5)
        network.cut(2)
        began = time.monotonic()
        for slice_, each in enumerate(started):
            answer = each.read()
            print(f"cut: slice {slice_} notices after {time.monotonic() - began:.1f} s: {answer['aborted']}")


def take_part(slice_: int, address: str, streams: int, megabytes: int) -> None:
    """Be one host of a slice."""
    size = megabytes * 1_000_000 // _WIRE.itemsize
    part = np.random.default_rng(slice_).standard_normal(size, np.float32).astype(_WIRE)
    out = np.zeros(size, np.float32)
    with Links(slice_, address, "benchmark", streams) as links, socket.create_server((address, 0)) as listener:
        print(json.dumps([links.address, listener.getsockname()]), flush=True)
        addresses = json.loads(input())["addresses"]
        peers = {each: link for each, (link, _) in enumerate(addresses)}
        plain = Plain(slice_, [tuple(each) for _, each in addresses], listener, streams)
        with Exchange(links, peers, 0) as exchange:
            for line in sys.stdin:
                request = json.loads(line)
                if "plain" in request:
                    began = time.monotonic()
                    plain.move(2 * part.nbytes // len(peers) // streams)
                    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
                    continue
                processor = time.process_time()
                parts = {each: each for each in peers}
                try:
                    traffic = exchange.sum(request["step"], {slice_: part}, parts, _WIRE, out, threading.Event())
                except Aborted as error:
                    print(json.dumps({"aborted": str(error)}), flush=True)
                    return
                used = time.process_time() - processor
                print(json.dumps(asdict(traffic) | {"processor_seconds": used}), flush=True)


class Plain:
    """Connections of a host to all others, over which bytes go in both directions."""

    def __init__(self, slice_: int, addresses: Sequence[tuple[str, int]], listener: socket.socket, streams: int):
        lower, higher = addresses[:slice_], addresses[slice_ + 1 :]
        self._connections = [socket.create_connection(each) for each in lower for _ in range(streams)]
        self._connections += [listener.accept()[0] for _ in higher for _ in range(streams)]
        self._threads = ThreadPoolExecutor(2 * len(self._connections))

    def move(self, count: int) -> None:
        """Send and receive `count` bytes over each connection."""
        moves = (self._send, self._receive)
        list(self._threads.map(lambda deed: deed[0](deed[1], count), product(moves, self._connections)))

    def _send(self, connection: socket.socket, count: int) -> None:
        block = bytes(1 << 20)
        while count:
            count -= connection.send(memoryview(block)[:count])

    def _receive(self, connection: socket.socket, count: int) -> None:
        block = memoryview(bytearray(1 << 20))
        while count:
            count -= connection.recv_into(block[:count])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slice_traffic")
    names = [*CASES, "cut"]
    parser.add_argument("cases", nargs="*", metavar="CASE", default=names, help=f"{', '.join(names)} (default: all)")
    cases = parser.parse_args().cases
    if unknown := set(cases) - set(names):
        parser.error(f"expected cases of {', '.join(names)}, got {', '.join(sorted(unknown))}")
    if set(cases) != {"loopback"} and (lacks := requirements()):
        parser.error(f"networks need {' and '.join(lacks)}; only the case loopback works without")
    # As Ctrl-C does, so that namespaces and hosts are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    print("| line of each host | slices | MB | streams | s | plain s | MB sent | of the line, plain | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in cases:
        for case in CASES.get(name, []):
            print(row(case), flush=True)
    if "cut" in cases:
        report_cut()


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        take_part(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()

"""Networks between Linux network namespaces, each of which is one host.

The kernel limits the rate of a network (`tc` with `tbf`). Delay, losses and cuts need a network in user space, because
not every kernel is built with `netem`: each host has a TUN device, and a thread passes packets on when a network would.
It needs a part of a core and passes about 5 Gb/s in total, so it is slower than the kernel even at 1 Gb/s.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Self

MTU_BYTES = 8896
"""MTU of Google's networks for accelerators (https://cloud.google.com/vpc/docs/mtu)."""

_TUN = Path("/dev/net/tun")
_SET_NAME, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_FLAGS = 0x0001 | 0x1000 | 0x4000
"""IFF_TUN, IFF_NO_PI and IFF_VNET_HDR of linux/if_tun.h: packets of IP after a header of virtio."""
_SEGMENTS = 0x01 | 0x02
"""TUN_F_CSUM and TUN_F_TSO4: the kernel passes up to 64 KiB of TCP in one packet, as it does to a network card."""
_VIRTIO = struct.Struct("=BBHHHH")
_LARGEST_BYTES = _VIRTIO.size + (1 << 16)
_EARLY_SECONDS = 0.0002
"""A host may give its next packet to the network this long before the one before it is sent."""


@dataclass(frozen=True)
class Line:
    """The connection of each host to the network, which is the same in both directions."""

    gigabits_per_second: float
    delay_seconds: float
    """Time from one host to another."""
    loss: float
    """Share of the packets of MTU size that are lost. A loss takes up to 64 KiB of the same burst with it."""

    @property
    def rate_only(self) -> bool:
        return not self.delay_seconds and not self.loss


def requirements() -> list[str]:
    """Return what this machine lacks to run networks."""
    lacks = [] if os.geteuid() == 0 else ["the rights of root"]
    if not _TUN.exists():
        lacks.append(f"the device {_TUN}")
    return lacks + [f"the command {name} (package iproute2)" for name in ("ip", "tc") if not shutil.which(name)]


class Network:
    """Hosts with the addresses 10.77.0.1, 10.77.0.2 and so on, each in a namespace of its own."""

    def __init__(self, hosts: int, line: Line):
        self.line = line
        self.names = [f"slice-{os.getpid()}-{host}" for host in range(hosts)]

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def open(self) -> None:
        """Create the devices of all hosts."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what the end of the namespaces leaves."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            for name in self.names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            self.open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self.close()

    def give(self, device: str, host: int) -> None:
        """Move a device to a host, and give it the host's address."""
        name = self.names[host]
        _ip("link", "set", device, "netns", name)
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", device)
        _ip("-n", name, "link", "set", device, "mtu", str(MTU_BYTES), "up")


class KernelNetwork(Network):
    """A bridge of the kernel, and a rate for what each host sends and receives."""

    def open(self) -> None:
        _ip("link", "add", self._bridge, "mtu", str(MTU_BYTES), "type", "bridge")
        _ip("link", "set", self._bridge, "up")
        for host, name in enumerate(self.names):
            outer, inner = self._outer(host), f"in{os.getpid()}-{host}"
            _ip("link", "add", outer, "mtu", str(MTU_BYTES), "type", "veth", "peer", "name", inner)
            self.give(inner, host)
            _ip("link", "set", outer, "master", self._bridge, "up")
            rate = ["root", "tbf", "rate", f"{self.line.gigabits_per_second}gbit", "burst", "256k", "latency", "20ms"]
            subprocess.run(["tc", "qdisc", "add", "dev", outer, *rate], check=True)
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", inner, *rate], check=True)

    def close(self) -> None:
        # The kernel removes what was in a namespace some time after it.
        for device in (*map(self._outer, range(len(self.names))), self._bridge):
            subprocess.run(["ip", "link", "del", device], check=False, capture_output=True)

    def _outer(self, host: int) -> str:
        return f"out{os.getpid()}-{host}"

    @property
    def _bridge(self) -> str:
        return f"slices{os.getpid()}"


class UserNetwork(Network):
    """TUN devices, and a thread that passes packets between them."""

    def __init__(self, hosts: int, line: Line):
        super().__init__(hosts, line)
        self._cut, self._running = set[int](), True
        self._devices = list[int]()
        self._thread = Thread(target=self._run, daemon=True)

    def cut(self, host: int) -> None:
        """Lose every packet from and to a host from now on."""
        self._cut.add(host)

    def open(self) -> None:
        for host in range(len(self.names)):
            device = f"slice{host}"
            self._devices.append(_open_device(device))
            self.give(device, host)
        self._thread.start()

    def close(self) -> None:
        self._running = False
        if self._thread.ident:
            self._thread.join()
        for device in self._devices:
            os.close(device)

    def _run(self) -> None:
        hosts = {device: host for host, device in enumerate(self._devices)}
        sent, received = [0.0] * len(hosts), [0.0] * len(hosts)
        """Times until which the lines of the hosts are busy."""
        under_way = list[tuple[float, int, int, bytes]]()
        """Heap of packets with the time at which they arrive, a running number and their destination."""
        seconds_per_byte = 8e-9 / self.line.gigabits_per_second
        number = 0
        while self._running:
            now = time.monotonic()
            while under_way and under_way[0][0] <= now:
                _, _, to, packet = heapq.heappop(under_way)
                # The queue of the device is full, or the host has gone.
                with suppress(OSError):
                    os.write(self._devices[to], packet)
            free = [device for device, host in hosts.items() if sent[host] <= now + _EARLY_SECONDS]
            until = min([now + 0.1, *(each - _EARLY_SECONDS for each in sent if each > now + _EARLY_SECONDS)])
            until = min(until, under_way[0][0]) if under_way else until
            ready, _, _ = select.select(free, [], [], max(0.0, until - now))
            now = time.monotonic()
            for device in ready:
                host = hosts[device]
                try:
                    packet = os.read(device, _LARGEST_BYTES)
                except OSError:  # its namespace is gone
                    return
                to = self._destination(packet)
                if to is None:
                    continue
                takes = len(packet) * seconds_per_byte
                sent[host] = max(sent[host], now) + takes
                if not self._loses(host, to, packet):
                    received[to] = max(sent[host] + self.line.delay_seconds, received[to] + takes)
                    number += 1
                    heapq.heappush(under_way, (received[to], number, to, packet))

    def _destination(self, packet: bytes) -> int | None:
        """Return the host that an IPv4 packet goes to."""
        to = packet[_VIRTIO.size + 19] - 1
        return to if packet[_VIRTIO.size] >> 4 == 4 and 0 <= to < len(self._devices) else None

    def _loses(self, host: int, to: int, packet: bytes) -> bool:
        if not self._cut.isdisjoint((host, to)):
            return True
        segment = _VIRTIO.unpack_from(packet)[3] or MTU_BYTES
        return bool(self.line.loss) and random.random() > (1 - self.line.loss) ** -(-len(packet) // segment)


def _open_device(name: str) -> int:
    device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _SET_NAME, struct.pack("16sH22x", name.encode(), _FLAGS))
    fcntl.ioctl(device, _SET_OFFLOAD, _SEGMENTS)
    return device


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)

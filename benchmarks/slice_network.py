"""A network between Linux network namespaces that runs in user space, with a rate, a delay, losses and cuts.

Each host has a TUN device. A thread reads the packets of all hosts and passes them on when a network would. Linux has
`tc` for the same purpose, but not every kernel is built with its delay and loss (`netem`). The thread needs a part of
a core, and passes about 5 Gb/s in total.
"""

import fcntl
import heapq
import os
import random
import select
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


def requirements() -> list[str]:
    """Return what this machine lacks to run networks."""
    lacks = [] if os.geteuid() == 0 else ["the rights of root"]
    if not _TUN.exists():
        lacks.append(f"the device {_TUN}")
    with suppress(FileNotFoundError):
        subprocess.run(["ip", "-V"], check=True, capture_output=True)
        return lacks
    return [*lacks, "the command ip (package iproute2)"]


class Network:
    """Hosts with the addresses 10.77.0.1, 10.77.0.2 and so on, each in a namespace of its own."""

    def __init__(self, hosts: int, line: Line):
        self._line, self._cut, self._open = line, set[int](), True
        self._names = [f"slice-{os.getpid()}-{host}" for host in range(hosts)]
        self._devices = list[int]()
        self._thread = Thread(target=self._run, daemon=True)

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on a host."""
        return ["ip", "netns", "exec", self._names[host], *command]

    def cut(self, host: int) -> None:
        """Lose every packet from and to a host from now on."""
        self._cut.add(host)

    def __enter__(self) -> Self:
        try:
            for host, name in enumerate(self._names):
                _ip("netns", "add", name)
                device = f"slice{host}"
                self._devices.append(_open_device(device))
                _ip("link", "set", device, "netns", name)
                _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", device)
                _ip("-n", name, "link", "set", device, "mtu", str(MTU_BYTES), "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()
        self._remove()

    def _remove(self) -> None:
        for device in self._devices:
            os.close(device)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _run(self) -> None:
        hosts = {device: host for host, device in enumerate(self._devices)}
        sent, received = [0.0] * len(hosts), [0.0] * len(hosts)
        """Times until which the lines of the hosts are busy."""
        under_way = list[tuple[float, int, int, bytes]]()
        """Heap of packets with the time at which they arrive, a running number and their destination."""
        seconds_per_byte = 8e-9 / self._line.gigabits_per_second
        number = 0
        while self._open:
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
                packet, host = os.read(device, _LARGEST_BYTES), hosts[device]
                to = self._destination(packet)
                if to is None:
                    continue
                takes = len(packet) * seconds_per_byte
                sent[host] = max(sent[host], now) + takes
                if not self._loses(host, to, packet):
                    received[to] = max(sent[host] + self._line.delay_seconds, received[to] + takes)
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
        return bool(self._line.loss) and random.random() > (1 - self._line.loss) ** -(-len(packet) // segment)


def _open_device(name: str) -> int:
    device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _SET_NAME, struct.pack("16sH22x", name.encode(), _FLAGS))
    fcntl.ioctl(device, _SET_OFFLOAD, _SEGMENTS)
    return device


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)

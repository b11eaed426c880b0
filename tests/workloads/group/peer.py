"""Slice 1 in a process of its own, which sums with slice 0 until it is killed: `python -m tests.workloads.group.peer`.

It prints its address, and reads the address of slice 0.
"""

import threading
from itertools import count

import numpy as np

from tests.workloads.group.slices import FLOAT32
from workloads.group.exchange import Exchange
from workloads.group.links import Links

SIZE = 5_000_000


def main() -> None:
    part, out = np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)
    with Links(1, "127.0.0.1", "group") as links:
        print(links.address, flush=True)
        with Exchange(links, {0: input(), 1: links.address}, 0) as exchange:
            for step in count():
                exchange.sum(step, {1: part}, {0: 0, 1: 1}, FLOAT32, out, threading.Event())
                assert (out == 2).all()


if __name__ == "__main__":
    main()

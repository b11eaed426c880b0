"""Tests which rows each of two hosts reads."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.training.data import AHEAD_BATCHES, Order, Part

ROOT = Path(__file__).parents[3]

HOST = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.workloads.jobs import small_job
from workloads.training.data import Batches
from workloads.training.rows import Dataset, Rows

class RecordingReader:
    shape = (200, 5)
    def __getitem__(self, rows):
        # In one piece, since several threads read.
        sys.stdout.write(" ".join(map(str, rows)) + "\\n")
        return np.array(rows, np.uint8)[:, None].repeat(5, axis=1)

jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
job = small_job("unused", global_batch=8, steps=1, seed=3)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("devices",)), PartitionSpec("devices"))
rows = Rows((Dataset("data", RecordingReader(), 160, 1, ""),), "uint8")
batch = Batches(rows, job.training, sharding).training(0)
assert batch.shape == (8, 5)
"""


@pytest.mark.costs(cpu_seconds=15)
def test_two_hosts_read_half_of_the_batch_each() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, coordinator, str(index)],
            cwd=ROOT,
            env={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        read = [[[*map(int, line.split())] for line in host.communicate(timeout=240)[0].splitlines()] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    order = Order((Part(0, 160, 1),), batch=8, seed=3)
    for host, own in enumerate((range(4), range(4, 8))):
        expected = [order.training(number, own) for number in range(AHEAD_BATCHES + 1)]
        assert expected[0] in read[host]
        assert all(rows in expected for rows in read[host])

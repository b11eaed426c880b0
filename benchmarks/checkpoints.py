"""Measures how long a save blocks the devices and a restore takes: `python -m benchmarks.checkpoints [SIZE ...]`.

Each size runs in its own process, with eight CPU devices as two slices and a temporary folder on the local disk.
`TMPDIR` selects another folder. A state has three float32 values per weight. The benchmark measures the trainer's own
path: fingerprints, save, and restore with a check of the fingerprints, and the same for local checkpoints, which are in
`/dev/shm`. It says nothing about transfers of a TPU or about object storage.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
from etils import epath

from tests.workloads.jobs import changed, small_job
from workloads.spec import JobSpec
from workloads.training.checkpoint import Checkpoints, Record
from workloads.training.fingerprint import Take, compile_fingerprints
from workloads.training.local_checkpoints import LocalCheckpoints
from workloads.training.mesh import build_mesh
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step import Program, TrainState

_DEVICES = 8
_MODELS = {"1M": (128, 4), "10M": (288, 8), "100M": (768, 11)}
"""Width and number of layers by size. The MLP is four times as wide, which gives 16 x width^2 weights per layer."""
_HEAD_DIM = 32
_SAVES = 3
_ALONE = Processes(0, 1, "here")
_COLUMNS = (
    "weights | state MiB | fingerprint s | blocking s, first | later | background s | restore s | of CPU"
    " | plain write s | local blocking s | background s | restore s"
)


def job(size: str, storage: Path) -> JobSpec:
    """Return a job with about this number of weights."""
    width, layers = _MODELS[size]
    heads = {"query_heads": width // _HEAD_DIM, "kv_heads": width // _HEAD_DIM, "head_dim": _HEAD_DIM}
    model = {"embed_dim": width, "mlp_dim": 4 * width, "layers": layers, **heads}
    return changed(small_job(storage, replica=2, fsdp=_DEVICES // 2), model=model)


def measure(size: str, folder: Path) -> tuple[float, ...]:
    """Return the values of a row of the table. The process must already have its devices."""
    spec = job(size, folder)
    program = Program(spec, build_mesh(spec.mesh, spec.slices, jax.devices()))
    state = jax.block_until_ready(program.compile_initial()())
    take = compile_fingerprints(program.state_shapes)
    fingerprints = min(_seconds(lambda: take(state)) for _ in range(_SAVES))
    fingerprint, _ = take(state)

    checkpoints = Checkpoints(epath.Path(folder / "checkpoints"), spec.training, _ALONE)
    blocking, background = list[float](), list[float]()
    for step in range(1, _SAVES + 1):
        blocking.append(_seconds(lambda step=step: checkpoints.save(step, state, Record(fingerprint, {}))))
        background.append(_seconds(lambda: list(checkpoints.finished(wait=True))))
    processor = time.process_time()
    restore = _seconds(lambda: checkpoints.restore(program.state_shapes, take, lambda line: print(line.line())))
    processor = time.process_time() - processor
    checkpoints.close()

    weights = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    size_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    block = np.random.default_rng(0).bytes(size_bytes)
    plain = _seconds(lambda: _write(folder / "plain", block))
    saves = fingerprints, blocking[0], min(blocking[1:]), min(background)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        local = _local(Path(memory), program.state_shapes, state, take)
    return weights, size_bytes / 2**20, *saves, restore, processor, plain, *local


def _local(memory: Path, shapes: TrainState, state: TrainState, take: Take) -> tuple[float, float, float]:
    """Return how long a local save blocks without its fingerprints, writes in the background, and restores."""
    run = Run("run", epath.Path(memory), 0, {})
    local, blocking, background = LocalCheckpoints(memory, run, shapes, _ALONE), list[float](), list[float]()
    for step in range(1, _SAVES + 1):
        (found, _) = local.begin(state, take)
        blocking.append(_seconds(lambda step=step, found=found: local.save(step, state, found)))
        local.begin(state, take)
        written = local.written()
        assert written
        background.append(written.seconds)
    restore = _seconds(lambda: local.restore(0, take, lambda line: print(line.line())))
    return min(blocking), min(background), restore


def _write(path: Path, block: bytes) -> None:
    with path.open("wb") as file:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())


def _seconds(deed: Callable[[], object]) -> float:
    began = time.monotonic()
    deed()
    return time.monotonic() - began


def row(size: str) -> str:
    """Return the row of the table for one size, which is measured in this process."""
    with tempfile.TemporaryDirectory() as folder:
        weights, mib, *seconds = measure(size, Path(folder))
    return f"| {weights / 1e6:.1f} M | {mib:.0f} | {' | '.join(f'{one:.2f}' for one in seconds)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints")
    parser.add_argument("sizes", nargs="*", metavar="SIZE", default=[*_MODELS], help=", ".join(_MODELS))
    sizes = parser.parse_args().sizes
    if unknown := set(sizes) - set(_MODELS):
        parser.error(f"expected sizes of {', '.join(_MODELS)}, got {', '.join(sorted(unknown))}")
    print(f"| {_COLUMNS} |\n|{'---|' * len(_COLUMNS.split(' | '))}", flush=True)
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(_DEVICES)}
    for size in sizes:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            print(process.submit(row, size).result(), flush=True)


if __name__ == "__main__":
    main()

"""Trains a classifier of images of 28 x 28 points on all hosts of a job. The images are drawn from a seed."""

import io

import jax
import jax.numpy as jnp
import numpy as np

from multislice_run.attempt import Attempt, Preempted

STEPS, BATCH, SAVE_EVERY = 1000, 512, 50
DIGITS = np.random.default_rng(0).normal(size=(10, 784)).astype("float32")


def loss_of(weights, images, labels):
    """Return the mean cross-entropy."""
    scores = jax.nn.relu(images @ weights["in"]) @ weights["out"]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * jax.nn.one_hot(labels, 10), axis=1))


@jax.jit
def train(weights, images, labels):
    """Return the weights after a step, and its loss."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda weight, slope: weight - 0.05 * slope, weights, gradient), loss


with Attempt(STEPS) as attempt:
    if attempt.hosts > 1:
        jax.distributed.initialize()  # finds the other hosts by the variables of the pod
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    by_row, whole = (jax.NamedSharding(mesh, jax.P(axis)) for axis in ("data", None))
    weights = {"in": np.tile(DIGITS.T, 12) / 784, "out": np.zeros((120, 10), "float32")}
    saved = attempt.folder / "weights"
    step = max((int(path.stem) for path in saved.glob("*.npz")), default=0)
    if step:
        weights = dict(np.load(io.BytesIO((saved / f"{step}.npz").read_bytes())))
    weights = jax.device_put(weights, whole)
    attempt.resumed(step)
    while step < STEPS:
        random, step = np.random.default_rng((step, jax.process_index())), step + 1
        labels = random.integers(10, size=BATCH // jax.process_count())
        images = DIGITS[labels] + random.normal(size=(len(labels), 784)).astype("float32")
        rows = [jax.make_array_from_process_local_data(by_row, part) for part in (images, labels)]
        weights, loss = train(weights, *rows)
        attempt.step(step, loss=float(loss))
        stopping = attempt.stopping(step)
        if stopping or step % SAVE_EVERY == 0 or step == STEPS:
            if attempt.leads:
                saved.mkdir(parents=True, exist_ok=True)
                np.savez(data := io.BytesIO(), **jax.device_get(weights))
                (saved / "partial").write_bytes(data.getvalue())
                (saved / "partial").rename(saved / f"{step}.npz")  # only complete files have a number
            attempt.saved(step)
        if stopping:
            raise Preempted(f"stopped after step {step}, which is saved")

"""Trains a language model of sharded weights with Optax, and Orbax saves it while training continues."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from multislice_run.attempt import Attempt, Preempted

STEPS, BATCH, LENGTH, VOCABULARY, WIDTH, SAVE_EVERY = 400, 64, 64, 128, 256, 50
OPTIMIZER = optax.adamw(1e-3)


def initial():
    """Return weights and optimizer state."""
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    shapes = {"table": (VOCABULARY, WIDTH), "inner": (2 * WIDTH, WIDTH), "outer": (WIDTH, VOCABULARY)}
    weights = {
        name: jax.random.normal(key, shape) / 16 for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights, OPTIMIZER.init(weights)


def loss_of(weights, tokens):
    """Return the cross-entropy of each token, predicted from the two before it."""
    before = weights["table"][jnp.stack([tokens[:, :-2], tokens[:, 1:-1]], axis=2)]  # [batch, length - 2, 2, width]
    scores = jax.nn.gelu(before.reshape(*before.shape[:2], -1) @ weights["inner"]) @ weights["outer"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, tokens[:, 2:]).mean()


@partial(jax.jit, donate_argnums=0)
def train(state, tokens):
    """Return the state after a step, and its loss."""
    weights, moments = state
    loss, gradient = jax.value_and_grad(loss_of)(weights, tokens)
    updates, moments = OPTIMIZER.update(gradient, moments, weights)
    return (optax.apply_updates(weights, updates), moments), loss


def batch(step, sharding):
    """Return this host's rows of the batch after `step`: numbers that count upwards by 1 to 4."""
    random = np.random.default_rng((step, jax.process_index()))
    first, by = (random.integers(*limits, size=(BATCH // jax.process_count(), 1)) for limits in ((0, 128), (1, 5)))
    return jax.make_array_from_process_local_data(sharding, (first + by * np.arange(LENGTH)) % VOCABULARY)


def main():
    """Train from the newest checkpoint to the last step."""
    with Attempt(STEPS, save_every_minutes=5) as attempt:
        if attempt.hosts > 1:
            jax.distributed.initialize()
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("all",))
        rows = jax.NamedSharding(mesh, jax.P("all"))

        def sharded(leaf):
            return rows if leaf.ndim else jax.NamedSharding(mesh, jax.P())

        shardings = jax.tree.map(sharded, jax.eval_shape(initial))
        state, step = jax.jit(initial, out_shardings=shardings)(), 0
        with ocp.CheckpointManager(attempt.folder / "checkpoints") as saves:
            if saves.latest_step():
                step = saves.latest_step()
                state = saves.restore(step, args=ocp.args.StandardRestore(state))
            attempt.resumed(step)
            pending = 0
            while step < STEPS:
                state, loss = train(state, batch(step, rows))
                step += 1
                attempt.step(step, loss=float(loss), tokens=BATCH * LENGTH)
                stopping = attempt.stopping(step)
                if stopping or step % SAVE_EVERY == 0 or step == STEPS:
                    # Waits for the save before, which is complete then.
                    saves.save(step, args=ocp.args.StandardSave(state))
                    if pending:
                        attempt.saved(pending)
                    pending = step
                if stopping or step == STEPS:
                    saves.wait_until_finished()
                    attempt.saved(step)
                if stopping:
                    raise Preempted(f"stopped after step {step}, which is saved")
            multihost_utils.sync_global_devices("end")


if __name__ == "__main__":
    main()

r"""Trains a small Llama with Levanter: `python -m examples.trainers.with_levanter STEPS`. It learns to count.

Levanter needs an environment of its own. The newest one on PyPI works with JAX 0.7.2, but not with 0.8 or later:

    python3.12 -m venv /tmp/levanter
    /tmp/levanter/bin/pip install --pre levanter==1.2.dev1644 jax==0.7.2 jaxlib==0.7.2 'equinox<0.13.3' \
        './multislice_run[gs]'

JAX 0.7.2 expects the first host on port 8476, and the sandbox sets 8482, so a job in the sandbox has this command:

    command:
      - sh
      - -c
      - JAX_COORDINATOR_BIND_ADDRESS=${JAX_COORDINATOR_BIND_ADDRESS%:*}:8476
        exec /tmp/levanter/bin/python -m examples.trainers.with_levanter 100
"""

import sys
import tempfile
from pathlib import Path

import haliax as hax
import jax
import levanter.tracker
from levanter.checkpoint import CheckpointerConfig
from levanter.distributed import RayConfig
from levanter.layers.attention import AttentionMask
from levanter.models.llama import LlamaConfig
from levanter.models.lm_model import LmExample, compute_next_token_loss
from levanter.optim.config import AdamConfig
from levanter.trainer import Trainer, TrainerConfig

from multislice_run.attempt import Attempt, Preempted

MODEL = LlamaConfig(seq_len=64, hidden_dim=64, intermediate_dim=128, num_layers=2, num_heads=4, num_kv_heads=4)
VOCABULARY, BATCH, SAVE_EVERY = hax.Axis("vocab", 128), 16, 20


def trainer_config(attempt):
    """Return a configuration with checkpoints in the folder of the run."""
    return TrainerConfig(
        id="levanter",
        tracker=levanter.tracker.NoopConfig(),
        log_dir=Path(tempfile.mkdtemp()),
        train_batch_size=BATCH,
        num_train_steps=attempt.steps,
        checkpointer=CheckpointerConfig(base_path=str(attempt.folder / "checkpoints")),
        ray=RayConfig(auto_start_cluster=False),
        require_accelerator=False,
    )


def batches(trainer, step):
    """Yield the batches after `step`: sequences that count upwards from a number of their own."""

    @hax.named_jit(axis_resources=trainer.compute_axis_mapping)
    def batch(number):
        first = hax.random.randint(jax.random.PRNGKey(number), (trainer.TrainBatch,), 0, VOCABULARY.size)
        tokens = (first.broadcast_axis(MODEL.Pos) + hax.arange(MODEL.Pos)) % VOCABULARY.size
        tokens = tokens.rearrange((trainer.TrainBatch, MODEL.Pos))
        return LmExample(tokens, hax.ones(tokens.axes), AttentionMask.causal())

    while True:
        yield batch(step)
        step += 1


def main():
    """Train with hooks that record steps and saves."""
    with Attempt(int(sys.argv[1])) as attempt:
        config = trainer_config(attempt)
        config.initialize()  # joins the other hosts
        checkpointer = config.checkpointer.create("levanter")

        def record(info):
            if info.next_step == attempt.last_step:
                return  # Levanter calls its hooks again after the last step
            attempt.step(info.next_step, loss=float(info.loss), tokens=BATCH * MODEL.seq_len)
            stopping = attempt.stopping(info.next_step)
            if stopping or info.next_step % SAVE_EVERY == 0 or info.next_step == attempt.steps:
                checkpointer.on_step(info, force=True)
                checkpointer.wait_until_finished()
                attempt.saved(info.next_step)
            if stopping:
                raise Preempted(f"SIGTERM: stopped after step {info.next_step}, which is saved")

        optimizer = AdamConfig(learning_rate=1e-3).build(attempt.steps)
        with Trainer(config, optimizer, compute_next_token_loss, add_default_hooks=False) as trainer:
            model_key, training_key = jax.random.split(jax.random.PRNGKey(0))
            state = trainer.initial_state(training_key, model_init=lambda: MODEL.build(VOCABULARY, key=model_key))
            attempt.resumed(int(state.step))
            trainer.add_hook(record)
            if state.step < attempt.steps:
                trainer.train(state, batches(trainer, int(state.step)))


if __name__ == "__main__":
    main()

"""Takes Levanter's train step of a job on request, with the Python of Levanter's own environment.

`cpu_step` starts it with `PYTHON levanter_step.py ATTENTION BEGAN JOB`. BEGAN is the start of the process in Unix
seconds and JOB is the job specification as JSON. It prints a JSON line after the first step. Then, for each line that
it reads, it takes that number of steps and prints their seconds. It builds what Levanter's `train_lm` builds, without
the parts that the other side of the comparison lacks too: tokenizer, data loader, hooks and tracker. The batch is
created once and stays on the device.
"""

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

attention, began, job = sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])
started = time.time()

import haliax as hax  # noqa: E402 - importing is measured
import jax  # noqa: E402
import jmp  # noqa: E402
import levanter.tracker  # noqa: E402
import numpy as np  # noqa: E402
from levanter.checkpoint import CheckpointerConfig  # noqa: E402
from levanter.layers.attention import AttentionBackend, AttentionMask  # noqa: E402
from levanter.layers.rotary import DefaultRotaryEmbeddingsConfig  # noqa: E402
from levanter.main.train_lm import LlamaConfig  # noqa: E402
from levanter.models.lm_model import LmExample  # noqa: E402
from levanter.optim.config import AdamConfig  # noqa: E402
from levanter.trainer import Trainer, TrainerConfig  # noqa: E402

imported = time.time()


def model_config(model, training, attention):
    """Return the model with full remat, Levanter's default: `gradient_checkpointing=True` keeps only layer inputs."""
    return LlamaConfig(
        max_seq_len=training["sequence_length"],
        hidden_dim=model["embed_dim"],
        intermediate_dim=model["mlp_dim"],
        num_layers=model["layers"],
        num_heads=model["query_heads"],
        num_kv_heads=model["kv_heads"],
        head_dim=model["head_dim"],
        tie_word_embeddings=model["tied_embedding"],
        gradient_checkpointing=True,
        attn_backend=attention,
        rope=DefaultRotaryEmbeddingsConfig(theta=model["rope_base"]),
    )


def trainer_config(training, scratch):
    """Return a configuration in which nothing is loaded, saved or logged."""
    return TrainerConfig(
        id="benchmark",
        seed=training["seed"],
        mp=jmp.get_policy("f32"),
        tracker=levanter.tracker.NoopConfig(),
        log_dir=scratch,
        log_jaxprs=False,
        log_xla_hlo=False,
        train_batch_size=training["global_batch"],
        num_train_steps=training["steps"],
        checkpointer=CheckpointerConfig(base_path=str(scratch)),
        load_checkpoint=False,
        require_accelerator=False,
    )


def optimizer_config(optimizer):
    """Return AdamW with clipping by global norm."""
    return AdamConfig(
        learning_rate=optimizer["learning_rate"],
        weight_decay=optimizer["weight_decay"],
        beta1=optimizer["beta1"],
        beta2=optimizer["beta2"],
        max_grad_norm=optimizer["clip_norm"],
        warmup=optimizer["warmup_steps"],
    )


def batch_of(trainer, config, vocab_size):
    """Return a batch. The last token of a sequence has no next token, so Levanter computes it with weight 0."""
    axes = (trainer.TrainBatch, config.max_Pos)
    tokens = np.random.default_rng(0).integers(0, vocab_size, [axis.size for axis in axes], np.int32)
    weight = np.ones(tokens.shape, np.float32)
    weight[:, -1] = 0
    return LmExample(
        hax.named(jax.device_put(tokens), axes), hax.named(jax.device_put(weight), axes), AttentionMask.causal()
    )


def main():
    """Build, take the first step, then answer requests."""
    model, training = job["model"], job["training"]
    config, trained = (
        model_config(model, training, AttentionBackend(attention)),
        trainer_config(training, Path(tempfile.mkdtemp())),
    )
    trained.initialize()
    optimizer = optimizer_config(job["optimizer"]).build(training["steps"])

    def loss(model, example, *, key=None):
        return model.compute_next_token_loss(example, key=key)

    with Trainer(trained, optimizer, loss, add_default_hooks=False) as trainer:
        model_key, training_key = jax.random.split(jax.random.PRNGKey(training["seed"]))
        vocabulary = hax.Axis("vocab", model["vocab_size"])
        state = trainer.initial_state(training_key, model_init=lambda: config.build(vocabulary, key=model_key))
        jax.block_until_ready(state)
        built = time.time()
        batch = batch_of(trainer, config, model["vocab_size"])
        state = trainer.train_step(state, batch).state
        jax.block_until_ready(state)
        first = time.time()
        parameters = sum(leaf.size for leaf in jax.tree.leaves(state.model))
        parts = {
            "python": started - began,
            "import": imported - started,
            "initialise": built - imported,
            "step": first - built,
        }
        versions = {name: version(name) for name in ("marin-levanter", "jax", "jaxlib")}
        print(json.dumps({"parts": parts, "parameters": int(parameters), "versions": versions}), flush=True)
        for line in sys.stdin:
            seconds = []
            for _ in range(int(line)):
                since = time.perf_counter()
                state = trainer.train_step(state, batch).state
                jax.block_until_ready(state)
                seconds.append(time.perf_counter() - since)
            print(json.dumps(seconds), flush=True)


main()

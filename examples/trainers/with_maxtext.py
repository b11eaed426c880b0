r"""Pre-trains with MaxText: `python -m examples.trainers.with_maxtext STEPS [NAME=VALUE ...]`.

The names are those of MaxText. Three of its functions are wrapped, because it offers no hooks for steps and saves.

MaxText needs an environment of its own:

    python3.12 -m venv /tmp/maxtext
    /tmp/maxtext/bin/pip install maxtext==0.2.5
    /tmp/maxtext/bin/pip install './multislice_run[gs]' -r \
        /tmp/maxtext/lib/python3.12/site-packages/dependencies/requirements/generated_requirements/decoupled-requirements.txt

A job in the sandbox has these settings:

    env: {DECOUPLE_GCLOUD: "TRUE"}
    command: [/tmp/maxtext/bin/python, -m, examples.trainers.with_maxtext, "80", hardware=cpu, dataset_type=synthetic,
      checkpoint_period=10]
    args: [base_emb_dim=64, base_num_query_heads=4, base_num_kv_heads=4, head_dim=16, base_mlp_dim=128,
      base_num_decoder_layers=2, vocab_size=256, max_target_length=64, per_device_batch_size=1, attention=dot_product]
"""

import sys
from pathlib import Path

import jax
import maxtext
from maxtext.common import checkpointing
from maxtext.common.metric_logger import MetricLogger
from maxtext.trainers.pre_train import train

from multislice_run.attempt import Attempt, Preempted

CONFIG = Path(maxtext.__file__).parent / "configs" / "base.yml"


def keep_records(attempt, config):
    """Let MaxText record its steps and saves. It numbers steps from 0; records count the steps that are done."""
    first_step, save, write = train.get_first_step, checkpointing.save_checkpoint, MetricLogger.write_metrics
    tokens = config.global_batch_size_to_train_on * config.max_target_length

    def get_first_step(model, state):
        step = first_step(model, state)
        attempt.resumed(step)
        return step

    def save_checkpoint(manager, step, *rest):
        saved = save(manager, step, *rest)
        if saved:
            attempt.saved(step + 1)
        return saved

    def write_metrics(logger, metrics, step, metric_type="train"):
        write(logger, metrics, step, metric_type)
        if metric_type == "train":
            attempt.step(step + 1, loss=float(metrics["scalar"]["learning/loss"]), tokens=tokens)

    train.get_first_step, checkpointing.save_checkpoint = get_first_step, save_checkpoint
    MetricLogger.write_metrics = write_metrics


def main():
    """Train, and leave with the exit code of a preempted job after SIGTERM, where MaxText itself would exit with 0."""
    steps = int(sys.argv[1])
    with Attempt(steps) as attempt:
        if attempt.hosts > 1:
            jax.distributed.initialize()
        own = [f"steps={steps}", "run_name=maxtext", f"base_output_directory={attempt.folder}"]
        saves = ["async_checkpointing=false", "save_checkpoint_on_start=false", "enable_autocheckpoint=true"]
        config, recorder = train.initialize([sys.argv[0], str(CONFIG), *own, *saves, *sys.argv[2:]])
        keep_records(attempt, config)
        train.run(config, recorder)
        if attempt.last_step < steps:
            raise Preempted(f"SIGTERM: stopped after step {attempt.last_step}, which is saved")


if __name__ == "__main__":
    main()

"""Trains a classifier with PyTorch/XLA in SPMD mode: one process on every host, with all chips of the job."""

import io

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

from multislice_run.attempt import Attempt, Preempted

STEPS, BATCH, SAVE_EVERY = 400, 512, 50
DIGITS = np.random.default_rng(0).normal(size=(10, 784)).astype("float32")


def rows(step, hosts):
    """Return this host's images and labels of the step."""
    random = np.random.default_rng((step, xr.process_index()))
    labels = random.integers(10, size=BATCH // hosts)
    images = DIGITS[labels] + random.normal(size=(len(labels), 784)).astype("float32")
    return torch.from_numpy(images), torch.from_numpy(labels)


def main():
    """Train from the newest checkpoint to the last step."""
    with Attempt(STEPS) as attempt:
        xr.use_spmd()
        device, count = torch_xla.device(), xr.global_runtime_device_count()
        mesh = xs.Mesh(np.arange(count), (count,), ("data",))
        by_row = {rank: xs.ShardingSpec(mesh, ("data", None)[:rank], minibatch=attempt.hosts > 1) for rank in (1, 2)}

        def to_chips(part):
            return xm.send_cpu_data_to_device([part], device, by_row[part.dim()])[0]

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
        saved = attempt.folder / "weights"
        step = max((int(path.stem) for path in saved.glob("*.pt")), default=0)
        if step:
            model.load_state_dict(torch.load(io.BytesIO((saved / f"{step}.pt").read_bytes())))
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        attempt.resumed(step)
        while step < STEPS:
            images, labels = rows(step, attempt.hosts)
            # Hosts receive SIGTERM at different steps, so each sends with its rows whether it has, and all get the sum.
            flags = torch.full((len(labels),), float(attempt.stopping(step)))
            images, labels, flags = (to_chips(each) for each in (images, labels, flags))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            found, stopping = torch.stack([loss.detach(), flags.sum()]).tolist()
            step += 1
            attempt.step(step, loss=found)
            if stopping or step % SAVE_EVERY == 0 or step == STEPS:
                if attempt.leads:
                    saved.mkdir(parents=True, exist_ok=True)
                    torch.save({name: each.cpu() for name, each in model.state_dict().items()}, data := io.BytesIO())
                    (saved / "partial").write_bytes(data.getvalue())
                    (saved / "partial").rename(saved / f"{step}.pt")  # only complete files have a number
                attempt.saved(step)
            if stopping:
                raise Preempted(f"SIGTERM: stopped after step {step}, which is saved")


if __name__ == "__main__":
    main()

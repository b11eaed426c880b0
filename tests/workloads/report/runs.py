"""Files of runs as the trainer writes them, made by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from workloads.report.history import History, read_history

type Facts = dict[str, Any]


def event(time: float, name: str, **facts: Any) -> Facts:
    return {"time": time, "event": name, **facts}


def step(number: int, time: float, loss: float | None = 3.0, seconds: float = 1.0, host_seconds: float = 0.0) -> Facts:
    return {
        "step": number,
        "time": time,
        "loss": loss,
        "skipped": loss is None,
        "step_seconds": seconds,
        "host_seconds": host_seconds,
        "tokens_per_second": 100.0 / seconds,
        "mfu": None,
    }


def began(
    time: float,
    attempt: int = 0,
    at: float = 0.0,
    usd_per_hour: float | None = None,
    host: str = "host-0",
    run_id: str = "job",
) -> Facts:
    slices = {"slices": 2, "asked_slices": 2}
    about = {"run_id": run_id, "restart_attempt": attempt, "began": at, "usd_per_hour": usd_per_hour, **slices}
    return event(time, "start", **about, host=host)


def failure(host: str, cause: str, code: int, *, began: float, time: float, attempt: int = 0) -> Facts:
    return {"host": host, "cause": cause, "code": code, "began": began, "time": time, "attempt": attempt}


def write_run(
    storage: Path,
    ledgers: Mapping[str, Sequence[Facts]],
    steps: Mapping[str, Sequence[Facts]],
    *failures: Facts,
    name: str = "one",
    run_id: str = "job",
) -> Path:
    """Write a run with files named `<start>-<process>` and `<start>-<part>`."""
    run = storage / "runs" / name
    for folder, files in (("ledger", ledgers), ("steps", steps)):
        (run / folder).mkdir(parents=True)
        for name, lines in files.items():
            (run / folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (storage / "failures" / run_id).mkdir(parents=True, exist_ok=True)
    for each in failures:
        record = {"elsewhere": False, "details": [], **each}
        file = f"{each['host']}-{each['attempt']}-{int(each['began'])}.json"
        (storage / "failures" / run_id / file).write_text(json.dumps(record))
    return run


def moved(lines: Sequence[Facts], seconds: float) -> list[Facts]:
    """Return the lines of a file so much later."""
    return [line | {name: line[name] + seconds for name in ("time", "began") if name in line} for line in lines]


def crashed_and_resumed(
    storage: Path, *usd_per_hour: float | None, run_id: str = "job", at: float = 0.0, name: str = "one"
) -> Path:
    """Write a run with steps 1 to 4, a save after 2, a crash in step 5, and a second attempt with steps 3 to 5.

    `usd_per_hour` is the price of each attempt. The first one begins at the time `at`.
    """
    prices = usd_per_hour or (None, None)
    first = [
        began(5, 0, 0, prices[0], run_id=run_id),
        event(9, "compile", seconds=4, attention="fused", compute_dtype="bfloat16"),
        event(9, "run_started", run="one", outcome="new", step=0, steps=5),
        event(12, "save", step=2, blocking_seconds=1),
    ]
    second = [
        began(33, 1, 30, prices[1], run_id=run_id),
        event(35, "restore", step=2, seconds=2),
        event(36, "compile", seconds=1),
        event(36, "run_started", run="one", outcome="resumed", step=2, steps=5),
        event(41, "evaluation", step=5, loss=2.5),
        event(41.5, "run_summary", run="one", step=5, evaluation_loss=2.5, seconds=11.5),
        event(42, "stop", cause="done", message="", code="DONE"),
    ]
    late_host = [began(5, 0, 2, host="host-1", run_id=run_id), event(5.1, "compile", seconds=1)]
    crash = failure("host-1", "ValueError: no such row", 1, began=2, time=15.5)
    steps = {
        "0-0": [step(1, 10, host_seconds=0.25), step(2, 11), step(3, 13), step(4, 14)],
        "1-0": [step(3, 37), step(4, 38, loss=None), step(5, 39)],
    }
    ledgers = {"0-0": first, "0-1": late_host, "1-0": second}
    later = [{file: moved(lines, at) for file, lines in files.items()} for files in (ledgers, steps)]
    return write_run(storage, *later, *moved([crash], at), name=name, run_id=run_id)


def history(run: Path) -> History:
    return read_history(epath.Path(run))

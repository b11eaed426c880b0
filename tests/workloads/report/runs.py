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
    time: float, attempt: int = 0, at: float = 0.0, usd_per_hour: float | None = None, host: str = "host-0"
) -> Facts:
    slices = {"slices": 2, "asked_slices": 2}
    about = {"run_id": "job", "restart_attempt": attempt, "began": at, "usd_per_hour": usd_per_hour, **slices}
    return event(time, "start", **about, host=host)


def began_slice(time: float, one: int, at: float, restarts: int = 0, usd_per_hour: float | None = None) -> Facts:
    """Return the start of the one host of a slice that restarts alone."""
    facts = began(time, at=at, usd_per_hour=usd_per_hour, host=f"host-{one}")
    return {**facts, "slices": 3, "asked_slices": 3, "slice": one, "slice_restarts": restarts}


def changed(time: float, step: int, slices: str, change: str) -> Facts:
    facts = {"present": len(slices.split()), "asked": 3, "slices": slices, "change": change}
    return event(time, "SlicesChanged", step=step, **facts)


def failure(host: str, cause: str, code: int, *, began: float, time: float, attempt: int = 0) -> Facts:
    return {"host": host, "cause": cause, "code": code, "began": began, "time": time, "attempt": attempt}


def write_run(
    storage: Path, ledgers: Mapping[str, Sequence[Facts]], steps: Mapping[str, Sequence[Facts]], *failures: Facts
) -> Path:
    """Write a run `one` with files named `<start>-<process>` and `<start>-<part>`."""
    run = storage / "runs" / "one"
    for folder, files in (("ledger", ledgers), ("steps", steps)):
        (run / folder).mkdir(parents=True)
        for name, lines in files.items():
            (run / folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (storage / "failures" / "job").mkdir(parents=True)
    for each in failures:
        record = {"elsewhere": False, "details": [], **each}
        name = f"{each['host']}-{each['attempt']}-{int(each['began'])}.json"
        (storage / "failures" / "job" / name).write_text(json.dumps(record))
    return run


def crashed_and_resumed(storage: Path, *usd_per_hour: float | None) -> Path:
    """Write a run with steps 1 to 4, a save after 2, a crash in step 5, and a second attempt with steps 3 to 5.

    `usd_per_hour` is the price of each attempt.
    """
    prices = usd_per_hour or (None, None)
    first = [
        began(5, 0, 0, prices[0]),
        event(9, "compile", seconds=4, attention="fused", compute_dtype="bfloat16"),
        event(9, "RunStarted", run="one", outcome="new", step=0, steps=5),
        event(12, "save", step=2, blocking_seconds=1),
    ]
    second = [
        began(33, 1, 30, prices[1]),
        event(35, "restore", step=2, seconds=2),
        event(36, "compile", seconds=1),
        event(36, "RunStarted", run="one", outcome="resumed", step=2, steps=5),
        event(41, "Evaluation", step=5, loss=2.5),
        event(41.5, "RunSummary", run="one", step=5, evaluation_loss=2.5, seconds=11.5),
        event(42, "stop", cause="done", message="", code="DONE"),
    ]
    late_host = [began(5, 0, 2, host="host-1"), event(5.1, "compile", seconds=1)]
    crash = failure("host-1", "ValueError: no such row", 1, began=2, time=15.5)
    return write_run(
        storage,
        {"0-0": first, "0-1": late_host, "1-0": second},
        {
            "0-0": [step(1, 10, host_seconds=0.25), step(2, 11), step(3, 13), step(4, 14)],
            "1-0": [step(3, 37), step(4, 38, loss=None), step(5, 39)],
        },
        crash,
    )


def slice_lost_and_back(storage: Path, *failures: Facts, usd_per_hour: float = 36.0) -> Path:
    """Write a run of 8 steps on three slices. The leading slice 0 is killed after step 4, and slice 1 leads.

    Slice 0 runs again at 18, has the state of slice 2 at 22.5, and leads from 22.6 on.
    """
    done = event(27, "stop", cause="done", message="", code="DONE")
    started = {"run": "one", "step": 0, "steps": 8}
    ledgers = {
        "0-0": [
            began_slice(9, 0, at=0, usd_per_hour=usd_per_hour),
            event(9.5, "compile", seconds=0.5, attention="fused", compute_dtype="bfloat16"),
            changed(10, 0, "0 1 2", "begun"),
            event(10, "RunStarted", outcome="new", **started),
        ],
        "0-1": [
            began_slice(9, 1, at=1, usd_per_hour=usd_per_hour),
            event(10, "restore", step=0, batch=0, seconds=0.1, donor=0),
            changed(15, 4, "1 2", "lost 0"),
            done,
        ],
        "0-2": [
            began_slice(9, 2, at=2, usd_per_hour=usd_per_hour),
            event(10, "restore", step=0, batch=0, seconds=0.1, donor=0),
            event(22.4, "gave_state", step=6, to=0, seconds=0.4),
            done,
        ],
        "0-3": [
            began_slice(20, 0, at=18, restarts=1, usd_per_hour=usd_per_hour),
            event(20, "compile", seconds=1, attention="fused", compute_dtype="bfloat16"),
            event(22.5, "restore", step=6, batch=6, seconds=0.5, donor=2),
            changed(22.6, 6, "0 1 2", "joined 0"),
            event(22.6, "RunStarted", outcome="resumed", **{**started, "step": 6}),
            event(26, "Evaluation", step=8, loss=2.5),
            event(26.5, "RunSummary", run="one", step=8, evaluation_loss=2.5, seconds=26.5),
            done,
        ],
    }
    # Slice 0 was killed before it wrote its last step, and slice 1 begins with those it may not have written.
    steps = {
        "0-0": [step(1, 11), step(2, 12), step(3, 13)],
        "0-1000": [step(3, 13), step(4, 14), step(5, 17, seconds=2), step(6, 18)],
        "0-3000": [step(7, 24, seconds=1.4), step(8, 25)],
    }
    return write_run(storage, ledgers, steps, *failures)


def history(run: Path) -> History:
    return read_history(epath.Path(run))

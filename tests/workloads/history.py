"""Reconstructs what a run was trained on from the files of its attempts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _events(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.open())


def history(storage: Path) -> tuple[list[int], list[int]]:
    """Return the batches of the run's steps, and those left out, in the order of the steps."""
    run = storage / "runs" / "run-1"
    batches, left_out = list[int](), list[int]()
    for start, ledger in enumerate(sorted(run.glob("ledger/*-0.jsonl"))):
        recorded = [*_events(ledger), *_events(run / "steps" / f"{start}-0.jsonl")]
        # At equal times, a decision comes before the step that follows from it.
        for event in sorted(recorded, key=lambda event: (event["time"], "event" not in event)):
            match event.get("event"):
                case "restore":
                    batches = batches[: event["step"]]
                    left_out = [batch for batch in left_out if batch < event["batch"]]
                case "rolled_back":
                    left_out += range(event["first_left_out"], event["last_left_out"] + 1)
                case None:
                    assert event["step"] == len(batches) + 1
                    batches.append(event["batch"])
                case _:
                    pass
    return batches, left_out

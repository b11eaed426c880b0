"""What a command answers."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console


def answered(command: Callable[[Console], int]) -> dict[str, Any]:
    """The JSON object that a command prints, which ends well."""
    written = io.StringIO()
    assert command(Console(file=written, width=200)) == 0
    return json.loads(written.getvalue())


def shown(command: Callable[[Console], int]) -> str:
    """What a person reads."""
    written = io.StringIO()
    assert command(Console(file=written, width=200)) == 0
    return " ".join(written.getvalue().split())


def saved(storage: Path, step: int) -> None:
    """The job `train` has saved a checkpoint of this step."""
    ledger = storage / "train" / "runs" / "r1" / "ledger" / "0-0.jsonl"
    ledger.parent.mkdir(parents=True)
    events = [{"event": "RunStarted", "step": 0}, {"event": "CheckpointSaved", "step": step}, {"event": "other"}]
    lines = [json.dumps({"time": 1.0, **event}) for event in events]
    ledger.write_text("\n".join(lines) + '\n{"event": "Checkp')
    (storage / "train" / "current.json").write_text('{"run": "r1"}')

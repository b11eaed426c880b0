from pathlib import Path

from cli.control.checkpoint import last_checkpoint
from tests.cli.control.answers import saved


def test_the_last_word_of_the_newest_start_counts(tmp_path: Path) -> None:
    saved(tmp_path, 80)
    ledger = tmp_path / "train" / "runs" / "r1" / "ledger"
    (ledger / "10-0.jsonl").write_text('{"time": 1.0, "event": "RunStarted", "step": 90}\n')
    (ledger / "9-0.jsonl").write_text('{"time": 1.0, "event": "CheckpointSaved", "step": 85}\n')
    (ledger / "11-1.jsonl").write_text('{"time": 1.0, "event": "CheckpointSaved", "step": 1}\n')
    found = last_checkpoint(str(tmp_path / "train"))
    assert str(found) == f"its last checkpoint is step 90 in {tmp_path}/train/runs/r1/checkpoints"


def test_a_job_that_never_trained_has_none(tmp_path: Path) -> None:
    assert str(last_checkpoint(str(tmp_path / "train"))) == "it has saved no checkpoint"


def test_a_line_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 80)
    assert last_checkpoint(str(tmp_path / "train")).step == 80


def test_a_run_without_a_ledger_has_none(tmp_path: Path) -> None:
    (tmp_path / "train" / "runs" / "r1").mkdir(parents=True)
    (tmp_path / "train" / "runs" / "r1" / "manifest.json").write_text("{}")
    assert last_checkpoint(str(tmp_path / "train")).step is None


def test_a_ledger_that_somebody_forged_is_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 80)
    ledger = tmp_path / "train" / "runs" / "r1" / "ledger"
    (ledger / "x-0.jsonl").write_text('{"time": 1.0, "event": "CheckpointSaved", "step": 7}\n')
    (ledger / "99-0.jsonl").write_bytes(
        b'\xff\n[1]\n{"time": 1.0, "event": "CheckpointSaved", "step": "all"}\n' + b"[" * 100_000 + b"\n"
    )
    assert last_checkpoint(str(tmp_path / "train")).step == 80

from pathlib import Path

import pytest

from workloads.data.__main__ import main


def test_a_folder_is_prepared_and_checked_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("some text")
    assert main(["prepare", "--input", str(tmp_path / "text"), "--output", str(tmp_path / "tokens")]) == 0
    told = capsys.readouterr().out
    assert "10 tokens of 1 documents in 1 files, uint8, vocabulary 256" in told
    assert main(["check", str(tmp_path / "tokens")]) == 0
    assert capsys.readouterr().out == told


def test_a_fault_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}: expected a finished token folder")


def test_progress_is_told_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.data.__main__._REPORT_SECONDS", 0.0)
    (tmp_path / "text").write_text("some text")
    main(["prepare", "--input", str(tmp_path / "text"), "--output", str(tmp_path / "tokens")])
    assert "1 of 1 files: 1 documents, 10 tokens, " in capsys.readouterr().err

import json
from pathlib import Path

import numpy as np
import pytest

from workloads.data.__main__ import main


def test_a_folder_is_prepared_and_checked_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.data.__main__._REPORT_SECONDS", 0.0)
    (tmp_path / "text").write_text("some text")
    assert main(["prepare", "--input", str(tmp_path / "text"), "--output", str(tmp_path / "tokens")]) == 0
    output, progress = capsys.readouterr()
    assert "10 tokens of 1 documents in 1 files, uint8, vocabulary 256" in output
    assert "1 of 1 files: 1 documents, 10 tokens, " in progress
    assert main(["check", str(tmp_path / "tokens")]) == 0
    assert capsys.readouterr().out == output


def test_conversations_are_prepared_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": messages}))
    asked = ["prepare", "--input", str(tmp_path / "chat.jsonl"), "--output", str(tmp_path / "tokens")]
    chat = ["--messages-field", "messages", "--turn", "{role}:{content};", "--begin", "^"]
    assert main([*asked, *chat]) == 1
    assert "--sequence-length needs --prompt-field or --messages-field" in capsys.readouterr().err
    assert main([*asked, *chat, "--sequence-length", "39"]) == 0
    assert "40 tokens of 1 documents in 1 files, uint16, vocabulary 256" in (output := capsys.readouterr().out)
    assert ", 42.5% padding, 0 documents cut" in output
    stored = np.fromfile(tmp_path / "tokens" / "tokens-00000.bin", "<u2")
    assert bytes((stored >> 1).astype(np.uint8)) == b"^user:hi;assistant:ho;\n" + bytes(17)
    assert bytes((stored[stored & 1 == 0] >> 1).astype(np.uint8)) == b"ho;\n"

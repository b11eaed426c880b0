"""`multislice confirm` on the shared stack, whose job has trained on two slices."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli import stack_file
from cli.confirm.items import ITEMS
from cli.confirm.record import read_confirmation
from cli.multislice import app
from tests.chain.shared import JOB, SAVE_EVERY, shared
from tests.chain.stack import Chain

pytestmark = pytest.mark.complete


def asked(stack: Chain, monkeypatch: pytest.MonkeyPatch, output: Path) -> tuple[int, str]:
    stack.written(shared())
    monkeypatch.setattr(stack_file, "stacks_folder", lambda: stack.folder)
    line = ["confirm", "-s", "local", "--engine", "sandbox", "--sandbox", str(stack.site.root), "--file", str(output)]
    ended = CliRunner().invoke(app, [*line, "-o", "json"])
    return ended.exit_code, ended.output


def test_a_sandbox_answers_what_needs_no_chips(stack: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stack.wait_for_step(JOB, SAVE_EVERY + 2)
    output = tmp_path / "confirmation.json"
    status, text = asked(stack, monkeypatch, output)
    found = read_confirmation(output)
    results: dict[str, Any] = {answer.item: answer for answer in found.answers}
    assert (status, found.where) == (0, "sandbox"), text
    assert [answer.item for answer in found.answers] == [item.name for item in ITEMS]
    assert results["second-preview"].found == {"different": 0, "pending": 0}
    for item in ("admission-policies", "second-preview", "team-folders", "megascale"):
        assert results[item].result == "confirmed", item
    assert results["megascale"].found == {"slices": 2}
    needs = {item.name: item.real for item in ITEMS if item.real}
    assert {name: results[name].why.removeprefix("needs ") for name in needs} == needs
    assert not any(f'"{name}"' in output.read_text() for name in (JOB, "local", *shared()["teams"]))


def test_a_file_that_cannot_be_written_is_reported_before_anything_is_asked(
    stack: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, text = asked(stack, monkeypatch, tmp_path / "missing" / "confirmation.json")
    assert status == 1
    assert "nothing was asked" in text

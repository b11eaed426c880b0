import sys
from pathlib import Path

import pytest

from cli.ci import expiry
from cli.halt import Halt


def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    script = tmp_path / "list.py"
    script.write_text(program)
    monkeypatch.setattr(expiry, "_LIST", (sys.executable, str(script)))


def test_the_names_of_expired_environments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, """print('[{"name": "pr-1"}, {"name": "pr-2"}]')""")
    assert expiry.expired() == ["pr-1", "pr-2"]


def test_a_list_that_cannot_be_had_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing(tmp_path, monkeypatch, "raise SystemExit(3)")
    with pytest.raises(Halt, match="could not be listed") as halt:
        expiry.expired()
    assert halt.value.exit_status == 3


def test_what_is_left_is_told_with_the_command_that_destroys_it() -> None:
    expiry.require_none_left([])
    with pytest.raises(Halt, match=r"got 1, which still cost money.*\n  python -m cli.multislice env destroy pr-7"):
        expiry.require_none_left(["pr-7"])

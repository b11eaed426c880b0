"""The file that people send: what it may contain, and what is not accepted."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.confirm.items import ITEMS, STAGES
from cli.confirm.record import NotAConfirmation, confirmations, read_confirmation
from tests.documents.pages import ROOT

VALID: dict[str, Any] = {
    "format": 1,
    "date": "2026-11-24",
    "where": "google",
    "version": "0.1.0",
    "slices": [{"generation": "v6e", "topology": "4x4", "capacity": "spot", "count": 2}],
    "answers": [{"item": "speed", "result": "confirmed", "found": {"estimated over measured": 1.02}, "why": ""}],
}


def written(folder: Path, name: str = "one.json", **changes: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(VALID | changes))
    return path


def test_every_file_that_was_sent_is_valid_and_from_google_cloud() -> None:
    assert (ROOT / "confirmed").is_dir()
    confirmations(ROOT / "confirmed")


def test_every_item_has_its_own_name_and_a_stage() -> None:
    assert len({item.name for item in ITEMS}) == len(ITEMS)
    assert {item.stage for item in ITEMS} == set(range(len(STAGES)))
    assert [item.stage for item in ITEMS] == sorted(item.stage for item in ITEMS)


def test_an_item_is_asked_or_says_how_a_person_finds_out() -> None:
    assert all(item.how for item in ITEMS)
    assert [item.name for item in ITEMS if item.real and item.question is None] == []


def test_a_valid_file_is_read(tmp_path: Path) -> None:
    assert read_confirmation(written(tmp_path)).answers[0].found == {"estimated over measured": 1.02}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "format"),
        ({"project": "my-project"}, "project"),
        ({"answers": []}, "answers"),
        ({"answers": [{"item": "speed", "result": "perhaps"}]}, "result"),
        ({"answers": [{"item": "speed", "result": "confirmed", "found": {"by": "ada@example.com"}}]}, "found"),
        ({"answers": [{"item": "speed", "result": "confirmed", "found": {"in": "gs://bucket/run"}}]}, "found"),
    ],
)
def test_a_file_with_anything_else_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(NotAConfirmation, match=said):
        read_confirmation(written(tmp_path, **changes))


def test_what_is_not_json_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("it works")
    with pytest.raises(NotAConfirmation, match=r"notes\.json"):
        read_confirmation(path)


def test_a_sandbox_confirms_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    assert [name for name, _ in confirmations(tmp_path)] == ["one.json"]
    written(tmp_path, "two.json", where="sandbox")
    with pytest.raises(NotAConfirmation, match="sandbox"):
        confirmations(tmp_path)

import json
from pathlib import Path
from typing import Any

import pytest

from workloads.data.documents import Piece, read_pieces
from workloads.data.manifest import DataFault
from workloads.data.turns import Turns

CHAT = Turns(("messages",), "<{role}>{content}</>", begin="")


def pieces(fields: Turns, record: Any) -> list[Piece]:
    return [piece for piece in fields.pieces(record, "here") if piece.text]


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_a_prompt_is_not_learned_and_its_completion_is() -> None:
    fields = Turns(("question", "answer"), "{content}", begin="^")
    assert pieces(fields, {"question": "1 + 1", "answer": "2"}) == [
        Piece(b"^", learned=False, special=True),
        Piece(b"1 + 1", learned=False),
        Piece(b"2"),
    ]


def test_of_messages_the_answers_and_what_ends_them_are_learned() -> None:
    found = pieces(CHAT, {"messages": [message("user", "a"), message("assistant", "b"), message("user", "c")]})
    assert b"".join(piece.text for piece in found) == b"<user>a</><assistant>b</><user>c</>"
    assert [piece.text for piece in found if piece.learned] == [b"b", b"</>"]
    assert [piece.text for piece in found if not piece.special] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("last", ["user", "model"])
def test_the_mark_behind_a_conversation_is_learned_if_its_last_message_is(last: str) -> None:
    *_, end = CHAT.pieces({"messages": [message("user", "a"), message(last, "b")]}, "here")
    assert end == Piece(b"", ends_document=True, learned=last == "model")


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"text": "x"}, "here: expected an object with a list of messages in 'messages', got {'text'"),
        ({"messages": "x"}, "here: expected an object with a list of messages"),
        ({"messages": []}, "here: expected an object with a list of messages"),
        ({"messages": [{"role": "user"}]}, "here: expected an object with text in 'content'"),
        ({"messages": ["x"]}, "here: expected an object with text in 'role'"),
    ],
)
def test_a_record_without_messages_is_named(record: Any, fault: str) -> None:
    with pytest.raises(DataFault, match=fault):
        list(CHAT.pieces(record, "here"))


def test_a_template_without_room_for_the_content_is_refused() -> None:
    with pytest.raises(DataFault, match=r"--turn: expected a text with {content} exactly once, got '{role}'"):
        Turns(("messages",), "{role}", "")


def test_a_file_of_plain_text_has_no_prompts(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("x")
    with pytest.raises(DataFault, match=r"some.txt: expected records in .jsonl, .*, got plain text"):
        list(read_pieces(str(tmp_path / "some.txt"), CHAT))


def test_each_line_of_json_is_a_conversation(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [message("assistant", word)]}) for word in ("one", "two")]
    (tmp_path / "some.jsonl").write_text("\n".join(lines))
    found = [piece.text for piece in read_pieces(str(tmp_path / "some.jsonl"), CHAT) if not piece.special]
    assert found == [b"one", b"", b"two", b""]

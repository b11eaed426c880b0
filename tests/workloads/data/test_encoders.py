import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from workloads.data.encoders import load_encoder
from workloads.data.token_folder import DataFault

WORDS = {"one": 3, "two": 70_000, "<end>": 5}


class Words:
    """The used part of `tokenizers.Tokenizer`. A token is a word, and <end> is a special token."""

    encode_special_tokens = False

    @classmethod
    def from_str(cls, text: str) -> "Words":
        json.loads(text)
        return cls()

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
        return {word: number for word, number in WORDS.items() if with_added_tokens or word != "<end>"}

    def encode(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        known = [WORDS[word] for word in text.split() if word != "<end>" or not self.encode_special_tokens]
        return SimpleNamespace(ids=[1, *known] if add_special_tokens else known)

    def encode_batch(self, texts: list[str], add_special_tokens: bool) -> list[SimpleNamespace]:
        return [self.encode(text, add_special_tokens) for text in texts]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Words))
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    return str(path)


def test_a_byte_is_a_token() -> None:
    encoder = load_encoder("bytes")
    assert [tokens.tolist() for tokens in encoder.encode([b"a\xff", b""])] == [[97, 255], []]
    assert (encoder.vocabulary, encoder.identity.sha256) == (256, None)


def test_a_tokenizer_file_is_named_by_its_hash_and_its_vocabulary_covers_gaps(words: str) -> None:
    encoder = load_encoder(words)
    assert encoder.vocabulary == 70_001
    assert encoder.identity.name == "tokenizer.json"
    assert encoder.identity.sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_special_tokens_come_from_the_mark_alone_never_from_the_text(words: str) -> None:
    encoder = load_encoder(words)
    (tokens,) = encoder.encode([b"one <end> two"])
    assert np.concatenate([tokens, encoder.encode_mark("<end>")]).tolist() == [3, 70_000, 5]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "got no file"), ("{", "expected a tokenizer.json of Hugging Face, got: ")]
)
def test_a_file_that_is_no_tokenizer_is_refused(words: str, content: str | None, message: str) -> None:
    Path(words).unlink() if content is None else Path(words).write_text(content)
    with pytest.raises(DataFault, match=message):
        load_encoder(words)


def test_a_missing_library_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataFault, match=r"--tokenizer t.json needs the library tokenizers.*; pip install tokenizers"):
        load_encoder("t.json")

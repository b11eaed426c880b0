"""Manifests of token folders with anything in them: one that holds, or a fault that says what to do."""

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from tests.fuzz.damage import damaged_bytes
from workloads.data.token_folder import MANIFEST, DataFault, Manifest, SourceFile, TokenFile, Tokenizer, read_manifest

VALID = Manifest(
    format_version=2,
    files=(TokenFile(name="tokens-00000.bin", tokens=1000, sha256="0" * 64),),
    sample_sha256="1" * 64,
    documents=3,
    dtype="uint16",
    vocabulary=300,
    tokenizer=Tokenizer(name="bytes", sha256=None),
    end_of_document="</s>",
    sources=(SourceFile(path="a.txt", size=10),),
)


@pytest.fixture(scope="module")
def folder() -> Generator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(deadline=None)
@given(content=damaged_bytes(VALID.model_dump_json(indent=1)))
def test_a_damaged_manifest_is_read_or_refused_with_what_to_do(content: bytes, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(content)
    try:
        found = read_manifest(str(folder))
    except DataFault as fault:
        told = str(fault)
    else:
        assert found.bytes >= 0
        return
    assert "prepare" in told

from dataclasses import replace
from pathlib import Path

import pytest

from workloads.call.folder import RETURNED, CallFolder, Damaged, Seals, new_keys

KEYS, OTHERS = new_keys(), new_keys()


def seals(path: Path, call: str = "one", keys: tuple[str, str] = KEYS) -> Seals:
    private, public = map(bytes.fromhex, keys)
    return Seals(CallFolder.at(str(path)), call, 16, public, private)


@pytest.mark.parametrize("at", [0, 70])
def test_a_sealed_file_that_was_changed_is_not_read(tmp_path: Path, at: int) -> None:
    seals(tmp_path).write(RETURNED, b"a longer content")
    content = bytearray((tmp_path / RETURNED).read_bytes())
    content[at] ^= 1
    (tmp_path / RETURNED).write_bytes(content)
    with pytest.raises(Damaged, match="is not what the call's hosts wrote; it is not opened"):
        seals(tmp_path).read(RETURNED)


def test_a_file_of_another_call_name_or_key_is_not_read(tmp_path: Path) -> None:
    seals(tmp_path).write(RETURNED, b"content")
    (tmp_path / "other.pkl").write_bytes((tmp_path / RETURNED).read_bytes())
    for other, name in (
        (seals(tmp_path, call="two"), RETURNED),
        (seals(tmp_path, keys=OTHERS), RETURNED),
        (seals(tmp_path), "other.pkl"),
    ):
        with pytest.raises(Damaged):
            other.read(name)


def test_whoever_knows_the_public_key_alone_reads_and_writes_nothing(tmp_path: Path) -> None:
    assert seals(tmp_path).read(RETURNED) is None
    seals(tmp_path).write(RETURNED, b"content")
    desk = replace(seals(tmp_path), private_key=None)
    assert desk.read(RETURNED) == b"content"
    forger = replace(desk, private_key=desk.public_key)
    forger.write(RETURNED, b"forged")
    with pytest.raises(Damaged):
        desk.read(RETURNED)


def test_what_hosts_raised_is_read_in_the_order_of_their_processes(tmp_path: Path) -> None:
    assert seals(tmp_path).read_raised() == []
    for process in (10, 2):
        seals(tmp_path).write_raised(process, f"of {process}".encode())
    assert seals(tmp_path).read_raised() == [b"of 2", b"of 10"]


def test_what_no_host_would_write_is_passed_over_and_a_record_without_its_seal_is_damaged(tmp_path: Path) -> None:
    seals(tmp_path).write_raised(3, b"of 3")
    for name in ("16.json", "garbage.json", "3.json.partial"):
        (tmp_path / "raised" / name).write_bytes(b"garbage")
    assert seals(tmp_path).read_raised() == [b"of 3"]
    for content in (b"", b"garbage"):
        (tmp_path / "raised" / "3.json").write_bytes(content)
        with pytest.raises(Damaged):
            seals(tmp_path).read_raised()


def test_a_file_that_is_larger_than_it_can_be_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CallFolder.at(str(tmp_path))
    folder.write("manifest.json", b"12345")
    assert folder.read("manifest.json", 5) == b"12345"
    monkeypatch.setattr(folder.filesystem, "cat_file", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(Damaged, match="expected at most 4 bytes, got 5; it is not opened"):
        folder.read("manifest.json", 4)


def test_a_folder_is_removed_but_for_what_is_kept(tmp_path: Path) -> None:
    folder = CallFolder.at(str(tmp_path / "call"))
    folder.remove()
    for name in ("manifest.json", "output/model", "raised/0.json"):
        folder.write(name, b"x")
    folder.remove(keep="output")
    assert folder.names("") == ["output/model"]

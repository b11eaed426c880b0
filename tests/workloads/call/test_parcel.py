from pathlib import Path

import pytest

from tests.workloads.call.running import written
from workloads.call.folder import MANIFEST, CallFolder, Damaged
from workloads.call.parcel import MAX_BYTES, read_parcel
from workloads.spec import CallSpec

PARTS = {"function.pkl": b"code", "arguments.pkl": b"numbers"}


def parcel(path: Path) -> tuple[CallSpec, CallFolder]:
    return written(path, "one", "train", PARTS), CallFolder.at(str(path))


def test_parts_arrive_as_they_were_packed(tmp_path: Path) -> None:
    manifest, parts = read_parcel(*parcel(tmp_path))
    assert (manifest.function, parts) == ("train", PARTS)


@pytest.mark.parametrize("name", [*PARTS, MANIFEST])
def test_a_changed_file_is_named_with_both_hashes_and_a_missing_one_by_its_path(tmp_path: Path, name: str) -> None:
    spec, folder = parcel(tmp_path)
    folder.write(name, (folder.read(name, MAX_BYTES) or b"")[:-1] + b" ")
    with pytest.raises(Damaged, match=rf"{name}: expected SHA-256 [0-9a-f]{{12}}, got [0-9a-f]{{12}}"):
        read_parcel(spec, folder)
    (tmp_path / name).unlink()
    with pytest.raises(Damaged, match=f"expected {tmp_path}/{name}, found none"):
        read_parcel(spec, folder)


@pytest.mark.parametrize(
    ("patched", "value", "versions"),
    [
        ("platform.python_version_tuple", lambda: ("3", "12", "1"), r"3\.12 and 3"),
        ("workloads.call.parcel._CLOUDPICKLE", "2.2.1", r"3\.13 and 2"),
    ],
)
def test_a_call_packed_by_another_python_or_cloudpickle_is_refused_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: str, value: object, versions: str
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(patched, value)
        spec, folder = parcel(tmp_path)
    with pytest.raises(
        ValueError, match=rf"packed by the image's Python 3\.13 and cloudpickle 3, got one packed by {versions};"
    ):
        read_parcel(spec, folder)

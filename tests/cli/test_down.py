import io
from pathlib import Path

import pytest
from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.down import Consent, buckets, down
from sandbox.site import create
from tests.cli.shown import read_output


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO())


def test_without_a_sandbox_there_is_one_quiet_line(tmp_path: Path, console: Console) -> None:
    assert down(stack_file.find("local"), tmp_path, Consent(), console) == 0

    assert read_output(console) == f"nothing to take down: {tmp_path} has no sandbox\n"
    assert not list(tmp_path.iterdir())


def test_checkpoints_are_not_deleted_off_a_terminal_without_consent(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    checkpoint = create(tmp_path).buckets / "checkpoints" / "tiny" / "25"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(bytes(3 * 2**20))

    with pytest.raises(Halt, match=r"gs://checkpoints  3\.0 MiB  .*\nNothing was deleted. Add --yes"):
        down(stack_file.find("local"), tmp_path, Consent(delete_checkpoints=True), console)

    assert checkpoint.exists()


def test_only_buckets_that_hold_something_are_named(tmp_path: Path) -> None:
    site = create(tmp_path)
    (site.buckets / "empty" / "folder").mkdir(parents=True)
    (site.buckets / "full").mkdir()
    (site.buckets / "full" / "object").write_bytes(b"123")
    (site.buckets / "full.bucketMetadata").write_text("{}")

    assert [(bucket.name, bucket.size_bytes) for bucket in buckets(site)] == [("full", 3)]

"""An environment from its making to its end, in a sandbox of its own: a sandbox has one cluster."""

import io
import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3
import yaml
from rich.console import Console

from cli.answer import Form
from cli.environments.backend import SandboxBackend
from cli.environments.create import Wish, create
from cli.environments.destroy import destroy
from cli.environments.files import Files
from cli.environments.listing import listing
from sandbox.daemon import CHECKOUT
from sandbox.site import Site
from sandbox.stacks import SandboxStacks
from tests.chain.stack import sandbox_in
from tests.policy.lasting import without_expiry

pytestmark = pytest.mark.complete

LIFETIME = timedelta(hours=8)


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    with sandbox_in(tmp_path / "machine") as chain:
        yield chain.site


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A source whose job waits, for nothing here depends on what it does."""
    files = Files(tmp_path / "stacks", tmp_path / "policies")
    for folder in (files.stacks, files.policies):
        folder.mkdir()
    content = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())
    content["config"]["tpu-multislice:teams"]["research"]["admission"] = "hold"
    files.stack("source").write_text(yaml.safe_dump(content))
    without_expiry(CHECKOUT / "policy" / "stacks" / "local.json", tmp_path).rename(files.policy("source"))
    return files


def test_an_environment_is_made_listed_found_without_its_file_and_destroyed_without_a_trace(
    site: Site, files: Files
) -> None:
    backend, console, born = (
        SandboxBackend(files, SandboxStacks(site.root)),
        Console(file=io.StringIO()),
        datetime.now(UTC),
    )

    assert create(Wish("try-1", "source", "8h"), backend, files, born, Form.TEXT, console) == 0
    bucket = site.buckets / "sandbox-try-1-checkpoints"
    stored = f"{site.gcs_url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=tiny/checkpoint"
    assert urllib3.request("POST", stored, body=b"weights").status == 200
    assert (bucket / "tiny" / "checkpoint").read_bytes() == b"weights"
    (young,) = listing(backend, files, born, expired=False)
    assert (young.name, young.source, young.usd_per_hour, young.file) == ("try-1", "source", 43.2, True)
    assert (young.expired, young.trouble) == (False, None)
    assert listing(backend, files, born, expired=True) == []

    files.remove("try-1")
    (old,) = listing(backend, files, born + LIFETIME, expired=True)
    assert (old.name, old.expired, old.file) == ("try-1", True, False)
    answer = Console(file=io.StringIO())
    assert destroy(None, backend, files, born + LIFETIME, Form.JSON, answer) == 0
    assert isinstance(answer.file, io.StringIO)
    (told,) = json.loads(answer.file.getvalue())["environments"]
    assert (told["name"], told["result"], told["remaining"]) == ("try-1", "destroyed", [])

    assert [path.name for path in site.cloud.iterdir()] == []
    assert not bucket.exists()
    assert [*backend.names()] == []
    assert sorted(path.name for path in files.stacks.iterdir()) == ["Pulumi.source.yaml"]
    assert destroy("try-1", backend, files, born, Form.TEXT, console) == 0

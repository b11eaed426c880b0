import io
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from cli.answer import Form
from cli.environments.create import Wish, create
from cli.environments.destroy import destroy, end
from cli.environments.files import Files
from tests.cli.environments.remembered import Remembered, Stack
from tests.cli.shown import read_output

LATER = timedelta(hours=9)


@pytest.fixture
def environments(backend: Remembered, files: Files) -> Remembered:
    """dev, and two environments of it."""
    for name in ("pr-1", "pr-2"):
        create(Wish(name, "dev", "8h"), backend, files, backend.now, Form.TEXT, Console(file=io.StringIO()))
    return backend


def test_stack_and_files_go_with_what_stood(environments: Remembered, files: Files) -> None:
    files.policy("pr-1").write_text("{}")
    assert end("pr-1", environments, files).result == "destroyed"
    assert [*environments.stacks] == ["dev", "pr-2"]
    assert not files.stack("pr-1").exists()
    assert not files.policy("pr-1").exists()
    assert end("pr-1", environments, files).result == "absent"


def test_one_whose_file_was_lost_is_destroyed_all_the_same(environments: Remembered, files: Files) -> None:
    files.remove("pr-1")
    assert end("pr-1", environments, files).result == "destroyed"
    assert not files.stack("pr-1").exists()


def test_one_that_was_never_brought_up_is_its_files(environments: Remembered, files: Files, now: datetime) -> None:
    create(Wish("pr-3", "dev", "8h"), None, files, now, Form.TEXT, Console(file=io.StringIO()))
    assert end("pr-3", environments, files).result == "destroyed"
    assert not files.stack("pr-3").exists()


def test_an_environment_without_resources_is_removed_without_the_engine(environments: Remembered, files: Files) -> None:
    environments.stacks["pr-1"].resources = []
    environments.stacks["pr-1"].stays = "the engine ran"
    assert end("pr-1", environments, files).result == "destroyed"


@pytest.mark.parametrize("known_by", ["backend and file", "file"])
def test_a_stack_that_stays_is_never_touched(known_by: str, environments: Remembered, files: Files) -> None:
    if known_by == "file":
        del environments.stacks["dev"]
    answer = end("dev", environments, files)
    assert (answer.result, "expected an environment, got the permanent stack dev" in answer.message) == ("failed", True)
    assert files.stack("dev").exists()


def test_one_whose_file_says_that_it_stays_is_never_touched(environments: Remembered, files: Files) -> None:
    files.stack("pr-1").write_text(files.stack("dev").read_text())
    answer = end("pr-1", environments, files)
    assert (answer.result, "should be permanent" in answer.message) == ("failed", True)
    assert environments.stacks["pr-1"].resources
    assert files.stack("pr-1").exists()


def test_a_file_whose_end_cannot_be_read_stays_with_the_reason(environments: Remembered, files: Files) -> None:
    del environments.stacks["pr-1"]
    files.stack("pr-1").write_text("config: {tpu-multislice:environment: {source: dev, expires_at: tomorrow}}")
    answer = end("pr-1", environments, files)
    assert (answer.result, "a time in UTC" in answer.message) == ("failed", True)
    assert files.stack("pr-1").exists()


def test_an_empty_name_is_not_all_that_expired(environments: Remembered, files: Files, now: datetime) -> None:
    destroy("", environments, files, now + LATER, Form.TEXT, Console(file=io.StringIO()))
    assert [*environments.stacks] == ["dev", "pr-1", "pr-2"]


def test_a_stack_that_may_be_one_is_never_touched(environments: Remembered, files: Files) -> None:
    environments.stacks["pr-9"] = Stack()
    answer = end("pr-9", environments, files)
    assert (answer.result, "cannot be read" in answer.message) == ("failed", True)
    assert "pr-9" in environments.stacks


def test_all_that_expired_are_destroyed_and_one_that_stays_holds_up_no_other(
    environments: Remembered, files: Files, now: datetime
) -> None:
    environments.stacks["pr-1"].stays = "the cluster does not answer"
    console = Console(file=io.StringIO())
    assert destroy(None, environments, files, now, Form.TEXT, console) == 0
    console = Console(file=io.StringIO())
    assert destroy(None, environments, files, now + LATER, Form.JSON, console) == 1
    found: dict[str, Any] = {each["name"]: each for each in json.loads(read_output(console))["environments"]}
    assert found["pr-1"]["remaining"] == ["gcp:storage/bucket:Bucket checkpoints"]
    assert found["pr-1"]["message"] == "the cluster does not answer"
    assert found["pr-2"]["result"] == "destroyed"
    assert [*environments.stacks] == ["dev", "pr-1"]
    assert files.stack("pr-1").exists()

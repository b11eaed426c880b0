import io
from datetime import datetime, timedelta

from rich.console import Console

from cli.answer import Form
from cli.environments.backend import Update
from cli.environments.create import Wish, create
from cli.environments.files import Files
from cli.environments.listing import Listed, listing, show
from infra.cost import bill
from infra.settings.read import parse
from tests.cli.environments.remembered import Remembered, Stack
from tests.cli.shown import read_output
from tests.infra.recording import stack_values

LATER = timedelta(hours=9)


def make(name: str, ttl: str, backend: Remembered, files: Files) -> None:
    create(Wish(name, "dev", ttl), backend, files, backend.now, Form.TEXT, Console(file=io.StringIO()))
    exported = bill(parse(stack_values("dev")), {}, None).model_dump(mode="json", exclude_none=True)
    backend.stacks[name].outputs = {"bill": exported}


def listed(backend: Remembered, files: Files, now: datetime, *, expired: bool = False) -> dict[str, Listed]:
    return {each.name: each for each in listing(backend, files, now, expired=expired)}


def test_environments_are_reported_with_what_they_cost_and_the_next_to_end_comes_first(
    backend: Remembered, files: Files, now: datetime
) -> None:
    make("pr-2", "2d", backend, files)
    make("pr-1", "8h", backend, files)
    found = listed(backend, files, now + LATER)
    assert [*found] == ["pr-1", "pr-2"]
    first = found["pr-1"]
    assert (first.source, first.expired, first.usd_per_hour, first.age_seconds) == ("dev", True, 19.44, 9 * 3600)
    assert [*listed(backend, files, now + LATER, expired=True)] == ["pr-1"]


def test_one_is_found_without_its_file_and_after_an_update_that_failed(
    backend: Remembered, files: Files, now: datetime
) -> None:
    make("pr-1", "8h", backend, files)
    backend.stacks["pr-1"].outputs = {}
    done = backend.stacks["pr-1"].updates[0]
    backend.stacks["pr-1"].updates = [Update("update", "failed", done.began, done.config)]
    files.remove("pr-1")
    found = listed(backend, files, now)["pr-1"]
    assert (found.file, found.source, found.usd_per_hour) == (False, "dev", None)
    assert found.trouble == "its last update failed"


def test_a_stack_of_which_nothing_is_known_is_reported(backend: Remembered, files: Files, now: datetime) -> None:
    backend.stacks["pr-9"] = Stack()
    console = Console(file=io.StringIO(), width=200)
    assert show(backend, files, now, Form.MARKDOWN, console, expired=True) == 1
    assert "pr-9: it was never deployed and has no stack file here" in read_output(console)

import io
import json
from datetime import datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rich.console import Console

from cli import stack_file
from cli.answer import Form, Halt
from cli.environments.create import LONGEST, Wish, create, lifetime
from cli.environments.files import Files
from infra.settings.errors import FieldError
from infra.stacks import NO_RENEWAL, Renewal, StacksError
from tests.cli.environments.remembered import Remembered, Stack, config_of
from tests.cli.shown import read_output
from tests.infra.one_job import only_team

WISH = Wish("pr-1", "dev", "8h")


def made(wish: Wish, backend: Remembered | None, files: Files, now: datetime) -> str:
    console = Console(file=io.StringIO(), width=200)
    assert create(wish, backend, files, now, Form.TEXT, console) == 0
    return read_output(console)


def refused(wish: Wish, backend: Remembered, files: Files, now: datetime) -> str:
    before = sorted(files.stacks.iterdir())
    with pytest.raises(Halt) as caught:
        made(wish, backend, files, now)
    assert sorted(files.stacks.iterdir()) == before
    assert set(backend.stacks) <= {"dev", wish.name}
    return str(caught.value)


def test_an_environment_is_its_source_under_names_of_its_own(backend: Remembered, files: Files, now: datetime) -> None:
    files.policy("dev").write_text(json.dumps({"all": "advisory"}))
    answer = made(WISH, backend, files, now)
    settings, source = stack_file.read(files.stack("pr-1")), stack_file.read(files.stack("dev"))
    assert settings.checkpoint_bucket == "our-project-pr-1-checkpoints"
    assert only_team(settings).namespace == "pr-1-research"
    assert settings.environment
    assert (settings.environment.source, settings.environment.expires_at) == ("dev", "2026-03-01T18:00:00Z")
    assert (settings.jobs, settings.slices, settings.image) == (source.jobs, source.slices, source.image)
    assert files.policy("pr-1").read_text() == files.policy("dev").read_text()
    assert "$19.44 an hour" in answer
    assert "16 chips of v6e (spot): the quota of our-project must have them in addition to those of dev" in answer
    assert "pr-1 is up" in answer


def test_as_json_the_answer_is_one_object(files: Files, now: datetime) -> None:
    console = Console(file=io.StringIO(), width=200)
    assert create(WISH, None, files, now, Form.JSON, console) == 0
    answer = json.loads(read_output(console))
    assert (answer["source"], answer["expires_at"], answer["up"]) == ("dev", "2026-03-01T18:00:00Z", False)
    assert answer["file"] == str(files.stack("pr-1"))
    assert answer["bill"]["at_once"]["usd_per_hour"] == 19.44


def test_a_source_that_is_protected_gives_an_environment_that_is_not(
    backend: Remembered, files: Files, now: datetime
) -> None:
    content = stack_file.content(files.stack("dev"))
    content["config"]["tpu-multislice:cluster"]["deletion_protection"] = True
    files.stack("dev").write_text(yaml.safe_dump(content))
    made(WISH, backend, files, now)
    assert stack_file.read(files.stack("pr-1")).cluster.deletion_protection is False


def test_every_fault_is_reported_at_once(backend: Remembered, files: Files, now: datetime) -> None:
    answer = refused(Wish("Prod_2", "prod", "8w"), backend, files, now)
    assert "3 error(s)" in answer
    assert "NAME: expected a name of at most 20" in answer
    assert "--ttl: expected minutes, hours or days of at most 7 days, such as 90m, 8h or 2d, got '8w'" in answer
    assert "slices.cubes.capacity: expected capacity that no other stack needs" in answer


def test_a_name_is_taken_by_a_file_or_a_stack(backend: Remembered, files: Files, now: datetime) -> None:
    answer = refused(Wish("dev", "dev", "8h"), backend, files, now)
    assert "Pulumi.dev.yaml and the backend" in answer
    assert "destroy" not in answer, "a permanent stack must not be destroyed as an environment"
    backend.stacks["pr-1"] = Stack()
    assert "got 'pr-1', which is in the backend" in refused(WISH, backend, files, now)


@pytest.mark.parametrize("content", [b"\xff\xfe\xfd", b"config: &a [*a]", b"a: 1\na: 2", b"config: {1: {2: 3}}"])
def test_an_unreadable_file_of_another_stack_is_ignored(
    content: bytes, backend: Remembered, files: Files, now: datetime
) -> None:
    files.stack("bad").write_bytes(content)
    made(WISH, backend, files, now)
    assert files.stack("pr-1").exists()


def test_example_values_are_refused_before_anything_is_made(backend: Remembered, files: Files, now: datetime) -> None:
    text = files.stack("dev").read_text()
    files.stack("dev").write_text(text.replace("our-project", "my-project"))
    assert "cloud.project: expected a name of your own, got my-project" in refused(WISH, backend, files, now)
    # A file alone costs nothing, and is for the reader to complete.
    made(WISH, None, files, now)


def test_a_missing_source_is_reported_by_its_option(backend: Remembered, files: Files, now: datetime) -> None:
    with pytest.raises(Halt, match="^did you mean dev. --from must name a file"):
        create(Wish("pr-1", "devel", "8h"), backend, files, now, Form.TEXT, Console(file=io.StringIO()))


@pytest.mark.parametrize("name", ["multislice-dev", "multislice-dev-2", "multislice"])
def test_a_name_that_begins_that_of_another_cluster_is_refused(
    name: str, backend: Remembered, files: Files, now: datetime
) -> None:
    assert "stack dev has multislice-dev" in refused(Wish(name, "dev", "8h"), backend, files, now)


def test_a_namespace_of_another_stack_is_refused(backend: Remembered, files: Files, now: datetime) -> None:
    content = yaml.safe_load(files.stack("staging").read_text())
    content["config"]["tpu-multislice:teams"]["research"]["namespace"] = "pr-1-research"
    files.stack("staging").write_text(yaml.safe_dump(content))
    assert "staging has pr-1-research" in refused(WISH, backend, files, now)


def test_an_environment_is_no_source(backend: Remembered, files: Files, now: datetime) -> None:
    made(WISH, backend, files, now)
    with pytest.raises(Halt, match="--from: expected a permanent stack, got the environment pr-1"):
        create(Wish("other", "pr-1", "8h"), backend, files, now, Form.TEXT, Console(file=io.StringIO()))


def test_nothing_is_left_when_no_stack_could_be_made(backend: Remembered, files: Files, now: datetime) -> None:
    backend.refuses = "no access"
    assert "pr-1 is not up, and nothing was created\nno access" in refused(WISH, backend, files, now)


def test_a_stack_whose_update_was_refused_before_it_began_is_removed_again(
    backend: Remembered, files: Files, now: datetime
) -> None:
    def up(name: str, renewal: Renewal = NO_RENEWAL, *, yes: bool = True) -> None:
        del renewal, yes
        backend.stacks[name] = Stack()
        raise StacksError("a mandatory rule is broken")

    backend.up = up
    assert "pr-1 is not up, and nothing was created\na mandatory rule" in refused(WISH, backend, files, now)
    assert [*backend.stacks] == ["dev"]


def test_what_a_failed_update_has_made_can_be_found(backend: Remembered, files: Files, now: datetime) -> None:
    def up(name: str, renewal: Renewal = NO_RENEWAL, *, yes: bool = True) -> None:
        del renewal, yes
        Remembered.up(backend, name)
        backend.refuses = "no chips"
        Remembered.up(backend, name)

    backend.up = up
    with pytest.raises(
        Halt, match="and its resources are billed; continue .* run multislice env destroy pr-1\nno chips"
    ):
        made(WISH, backend, files, now)
    assert config_of(files.stack("pr-1"))


@hypothesis_settings(deadline=None)
@given(st.integers(0, 20000), st.sampled_from("smhdw"))
def test_a_lifetime_is_short_and_positive_or_refused(count: int, unit: str) -> None:
    found = lifetime(f"{count}{unit}")
    minutes = {"m": 1, "h": 60, "d": 24 * 60}.get(unit, 0) * count
    legal = 0 < minutes <= LONGEST.days * 24 * 60
    assert isinstance(found, FieldError) != legal
    assert isinstance(found, FieldError) or found.total_seconds() == minutes * 60

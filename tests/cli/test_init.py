import json
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli import stack_file
from cli.answer import Halt
from cli.init import InitOptions, init
from cli.main import app
from policy.exceptions import read_exceptions
from tests.cli.shown import console

VALUES = ("--project", "acme-tpus", "--generation", "v6e", "--topology", "4x4", "--zone", "us-east5-b")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, exit_status: int = 0) -> Result:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == exit_status, found.output
    return found


def test_an_empty_folder_becomes_a_project_whose_stack_passes_the_review(empty_folder: Path) -> None:
    run("init", *VALUES)
    assert {str(path.relative_to(empty_folder)) for path in empty_folder.rglob("*") if path.is_file()} == {
        "Pulumi.yaml",
        "__main__.py",
        "policy/PulumiPolicy.yaml",
        "policy/__main__.py",
        "policy/stacks/dev.json",
        "stacks/Pulumi.dev.yaml",
        "stacks/schema.json",
    }
    review = json.loads(run("review", "-s", "dev", "-o", "json").stdout)
    assert (review["refused"], review["bill"]["at_once"]["usd_per_hour"] > 0) == ([], True)


def test_a_second_stack_joins_the_project_from_a_folder_below(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", *VALUES)
    before = (empty_folder / "Pulumi.yaml").read_text()
    monkeypatch.chdir(empty_folder / "policy")
    run("init", "prod", *VALUES, "--capacity", "on-demand")
    assert stack_file.names() == ["dev", "prod"]
    settings = stack_file.read(stack_file.find("prod"))
    assert (settings.cluster.name, settings.slices["trillium"].capacity.kind) == ("multislice-prod", "on-demand")
    assert (empty_folder / "Pulumi.yaml").read_text() == before


def test_the_exceptions_of_a_new_stack_count_from_today(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for today in (date(2026, 11, 28), date(2031, 2, 28)):
        folder = empty_folder / str(today)
        folder.mkdir()
        monkeypatch.chdir(folder)
        init("dev", InitOptions("acme-tpus", "v6e", "4x4", "us-east5-b", None, "spot"), console(), today)
        rules = json.loads((folder / "policy" / "stacks" / "dev.json").read_text())
        assert rules.keys() == {"deletion-protection", "encrypted-secrets", "signed-images", "system-nodes"}
        for rule in rules.values():
            for exception in read_exceptions(rule):
                # A day's difference between time zones does not matter.
                for checked_on in (today - timedelta(days=1), today + timedelta(days=300)):
                    assert exception.void(checked_on) is None


@pytest.mark.parametrize("file", ["stacks/Pulumi.dev.yaml", "policy/stacks/dev.json", "__main__.py", "Pulumi.yaml"])
def test_nothing_is_written_over_an_existing_file(file: str, empty_folder: Path) -> None:
    existing = empty_folder / file
    existing.parent.mkdir(parents=True, exist_ok=True)
    existing.write_text("mine")
    assert str(existing) in run("init", *VALUES, exit_status=1).stderr
    assert [path for path in empty_folder.rglob("*") if path.is_file()] == [existing]
    assert existing.read_text() == "mine"


def test_all_errors_are_reported_at_once_by_their_options(empty_folder: Path) -> None:
    words = ("--generation", "v6e", "--topology", "3x3", "--zone", "us-east5-b", "--region", "us-west1")
    expected = {"--project", "--generation, --topology", "--zone", "NAME"}
    for project in ((), ("--project", "Acme"), ("--project", "my-project")):
        told = run("init", "Dev", *words, *project, exit_status=1).stderr.splitlines()
        assert {line.partition(":")[0] for line in told} == expected
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "meant"), [("Bad_Name", "bad-name"), ("a/b", "a-b"), ("a-name-of-22-characters", None)]
)
def test_a_bad_name_is_reported_as_it_was_typed_with_what_is_allowed(
    name: str, meant: str | None, empty_folder: Path
) -> None:
    told = run("init", name, *VALUES, exit_status=1).stderr
    allowed = "expected a name of at most 20 lower-case letters, digits and hyphens that begins with a letter"
    assert f"{allowed}, got {name!r}" in told
    assert (f"write {meant}" in told) == (meant is not None)
    assert list(empty_folder.iterdir()) == []


def test_a_bad_name_is_reported_before_any_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with pytest.raises(Halt, match="^NAME: expected a name of at most 20 .*, got 'Bad_Name'; choose another$"):
        init("Bad_Name", InitOptions(None, None, None, None, None, "spot"), console())


def test_a_long_name_is_that_of_the_cluster_too() -> None:
    run("init", "production", *VALUES)
    assert stack_file.read(stack_file.find("production")).cluster.name == "production"


def test_a_price_that_is_unknown_names_the_option_that_needs_it() -> None:
    words = ("--project", "acme-tpus", "--generation", "7x", "--topology", "2x2x2", "--zone", "us-east5-b")
    assert run("init", *words, "--capacity", "on-demand", exit_status=1).stderr.startswith("--capacity: ")


def test_missing_values_are_asked_for_on_a_terminal(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["acme-tpus", "", "trillium", "v6e-16", "us-east5-b"])
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question="": asked.append(question) or next(answers))
    shown = console()
    assert init("dev", InitOptions(None, None, None, None, None, "spot"), shown) == 0
    cloud = yaml.safe_load((empty_folder / "stacks" / "Pulumi.dev.yaml").read_text())["config"]["tpu-multislice:cloud"]
    assert cloud == {"project": "acme-tpus", "region": "us-east5", "zone": "us-east5-b"}
    assert len(asked) == 5


def test_the_error_about_a_word_that_is_no_zone_shows_a_zone(empty_folder: Path) -> None:
    del empty_folder
    words = ("--project", "acme-tpus", "--generation", "v6e", "--topology", "4x4", "--zone", "mars")
    assert (
        "--zone: expected a zone of us-east5, which has us-east5-a, us-east5-b, us-east5-c, got 'mars'"
        in run("init", *words, exit_status=1).stderr
    )

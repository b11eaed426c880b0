"""Commands about plans as people type them: each option reaches what it is for."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pulumi.automation import EngineEvent
from typer.testing import CliRunner

from cli import stack_file
from cli.main import app
from cli.preview import PreviewRequest
from cli.sandbox_folder import DEFAULT
from sandbox.daemon import CHECKOUT
from sandbox.engine import PolicyPack
from tests.cli.test_drift import POOL, RecordedEngine, refreshed
from tests.cli.test_preview import ASKED, Played
from tests.infra.one_job import only_spec
from tests.infra.review.previews import passing
from tests.workloads.test_preflight_result import result
from workloads.preflight_result import cache_folder, keep

FORMS = ["text", "json", "markdown"]


def read_output(*words: str, exit_status: int = 0) -> str:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == exit_status, found.output
    return found.stdout


def forms_of(*words: str, exit_status: int = 0) -> list[str]:
    """Return the output format of each answer, which is recognised by what only that format has."""
    forms = ((), ("-o", "json"), ("-o", "markdown"))
    answers = [read_output(*words, *form, exit_status=exit_status) for form in forms]
    return ["json" if answer.startswith("{") else "markdown" if "| --" in answer else "text" for answer in answers]


@pytest.mark.parametrize("tokens", ["1e12", "1T", "1t", "1000B", "1_000_000_000_000"])
def test_tokens_are_written_as_people_write_them(tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(tmp_path, monkeypatch)
    planned = json.loads(read_output("plan", "-s", "local", "--tokens", tokens, "--days", "1e9", "-o", "json"))
    assert (planned["jobs"][0]["tokens"], planned["deadline_days"]) == (1e12, 1e9)


def test_a_plan_and_a_known_preflight_are_reported_in_each_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path, monkeypatch)
    assert forms_of("plan", "-s", "local") == forms_of("preflight", "-s", "local") == FORMS


def followed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of compilations, which are noted and not run."""
    started: list[list[str]] = []

    def follow(command: list[str], *_: object) -> int:
        started.append(command)
        return 0

    monkeypatch.setattr("cli.preflight._follow", follow)
    return started


def test_a_preflight_writes_the_compiled_programs_to_the_given_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path, monkeypatch)
    started = followed(monkeypatch)
    read_output("preflight", "-s", "local", "-o", "json", "--compile-cache", "gs://bucket/programs")
    assert [command[-2:] for command in started] == [["--compile-cache", "gs://bucket/programs"]]


def test_a_known_preflight_is_compiled_again_for_the_other_choice_of_compile_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path, monkeypatch)
    started = followed(monkeypatch)
    read_output("preflight", "-s", "local", "-o", "json")
    assert started == []
    read_output("preflight", "-s", "local", "-o", "json", "--compare-compile")
    assert [command[-1] for command in started] == ["--compare-compile"]


def known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preflight of the stack `local`, so that nothing is compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    spec = only_spec(stack_file.read(stack_file.find("local")))
    keep(result(spec), cache_folder({"XDG_CACHE_HOME": str(folder)}))


class Saving(Played):
    """Previews what passes, and knows where its plan went."""

    def __init__(self) -> None:
        super().__init__([ASKED], passing().review, refuses=False)
        self.saved: list[Path | None] = []

    def preview(self, on_event: Callable[[EngineEvent], None], save_plan: Path | None) -> None:
        self.saved.append(save_plan)
        super().preview(on_event, save_plan)


def test_a_preview_asks_the_engine_that_is_named_and_saves_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = Saving(), list[PreviewRequest]()

    def of(request: PreviewRequest, path: Path, policy: PolicyPack) -> AbstractContextManager[Saving]:
        del path, policy
        asked.append(request)
        return nullcontext(engine)

    monkeypatch.setattr("cli.preview._engine", of)
    words = ("preview", "-s", "dev")
    assert forms_of(*words) == FORMS
    read_output(*words, "--engine", "pulumi", "--save-plan", "plan.json")
    read_output(*words, "--sandbox", "here")
    plain = PreviewRequest("dev", "sandbox", None, None)
    assert asked == [plain] * 3 + [
        replace(plain, engine="pulumi", save_plan=Path("plan.json")),
        replace(plain, sandbox=Path("here")),
    ]
    assert engine.saved == [None] * 3 + [Path("plan.json"), None]


def test_drift_is_looked_for_where_the_command_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path | None]] = []

    def of(path: Path, sandbox: Path | None, command: str) -> AbstractContextManager[RecordedEngine]:
        asked.append((path.name, sandbox))
        return nullcontext(RecordedEngine(refreshed(POOL, "pool", {"a": 1}, {"a": 2}, ["a"])))

    monkeypatch.setattr("cli.engines.open_engine", of)
    words = ("drift", "-s", "dev")
    assert forms_of(*words, exit_status=2) == FORMS
    read_output(*words, "--engine", "sandbox", exit_status=2)
    read_output(*words, "--engine", "sandbox", "--sandbox", "here", exit_status=2)
    assert asked == [("Pulumi.dev.yaml", sandbox) for sandbox in (None, None, None, CHECKOUT / DEFAULT, Path("here"))]

import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pulumi.automation import CommandError, EngineEvent
from pulumi.automation._cmd import CommandResult
from rich.console import Console

from cli import stack_file
from cli.answer import Form, Halt
from cli.preview import PreviewRequest, preview, run_preview
from cli.stack_file import Files, files_of_project, policy_pack
from infra.review.review import REVIEW_FILE, Previewed, Review
from sandbox.engine import PolicyPack
from tests.cli.shown import read_output
from tests.cli.test_engines import error, recorded
from tests.infra.review.previews import passing
from tests.policy.lasting import without_expiry

DEV = PreviewRequest("dev", "sandbox", save_plan=None, sandbox=None)


_SUMMARY = {"maybeCorrupt": False, "durationSeconds": 1, "resourceChanges": {}, "PolicyPacks": {"pack": "0.1.0"}}
ASKED = EngineEvent.from_json({"summaryEvent": _SUMMARY})


class Played:
    """An engine that sends recorded events, and a program that writes its review."""

    def __init__(self, events: list[EngineEvent], review: Review | None, *, refuses: bool) -> None:
        self._events, self._review, self._refuses = events, review, refuses

    def preview(self, on_event: Callable[[EngineEvent], None], save_plan: Path | None) -> None:
        del save_plan
        for event in self._events:
            on_event(event)
        if self._review:
            Path(os.environ[REVIEW_FILE]).write_text(self._review.model_dump_json())
        if self._refuses:
            raise CommandError(CommandResult(stdout="", stderr="no backend", code=255))


@pytest.mark.costs(cpu_seconds=15)
def test_a_plan_is_made_offline_and_everything_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_expiry(files_of_project().policy("dev"), tmp_path)
    files = Files(stack_file.stacks_folder(), tmp_path)
    monkeypatch.setattr("cli.preview.files_of_project", lambda: files)
    plan, console = tmp_path / "plan.json", Console(file=io.StringIO(), highlight=False)
    status = preview(replace(DEV, save_plan=plan), Form.JSON, console)
    found = Previewed.model_validate_json(read_output(console))
    known = passing().review
    assert found.review
    assert known
    assert found.review.bill == known.bill
    assert found.errors == ()
    assert {change.operation for change in found.changes} == {"create"}
    assert {"slices-trillium-0", "job-tiny", "queue-research"} <= {change.name for change in found.changes}
    planned = {urn.rpartition("::")[2] for urn in json.loads(plan.read_text())["resourcePlans"]}
    assert {name for name in planned if not name.startswith("default")} == {change.name for change in found.changes}
    assert status == (0 if found.passes else 2)


def test_a_mandatory_rule_that_is_broken_is_no_error_of_the_engine() -> None:
    found = run_preview("dev", Played(recorded("refused"), passing().review, refuses=True), None)
    assert (found.errors, found.passes, found.review) == ((), False, passing().review)
    assert len(found.changes) == 51


def test_a_program_that_ends_early_has_no_review_and_the_errors_say_why() -> None:
    answer = run_preview("dev", Played([error("no program")], None, refuses=True), None)
    assert (answer.review, answer.errors) == (None, ("no program",))
    silent = run_preview("dev", Played([], None, refuses=True), None)
    assert "no backend" in silent.errors[0]


def test_what_an_engine_complains_of_without_refusing_is_no_error() -> None:
    found = run_preview("dev", Played([error("plugin was slow"), ASKED], passing().review, refuses=False), None)
    assert found.errors == ()
    assert found.passes


def test_a_preview_that_did_not_check_the_rules_does_not_pass() -> None:
    found = run_preview("dev", Played([], passing().review, refuses=False), None)
    assert "expected the engine to run the policy pack" in found.errors[0]
    assert not found.passes


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (replace(DEV, stack="prd"), r"--stack must name a file .*, got 'prd'; choose one of: dev, "),
        (replace(DEV, sandbox=Path("nowhere")), r"expected a sandbox in the folder nowhere"),
    ],
)
def test_what_was_asked_wrongly_is_reported_before_an_engine_starts(asked: PreviewRequest, message: str) -> None:
    with pytest.raises(Halt, match=message):
        preview(asked, Form.TEXT, Console())


def test_a_stack_without_settings_of_the_rules_is_held_to_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs: list[PolicyPack] = []

    def open_engine(request: PreviewRequest, path: Path, pack: PolicyPack) -> AbstractContextManager[Played]:
        packs.append(pack)
        return nullcontext(Played([ASKED], passing().review, refuses=False))

    monkeypatch.setattr("cli.preview.files_of_project", lambda: Files(stack_file.stacks_folder(), tmp_path))
    monkeypatch.setattr("cli.preview._engine", open_engine)
    assert preview(DEV, Form.JSON, Console(file=io.StringIO())) == 0
    assert packs == [PolicyPack(policy_pack(), None)]


@pytest.mark.parametrize(
    ("policy_file", "message"),
    [
        ('{"named-rights": {"exceptions": []}}', "got 'named-rights': it is now part of no-cluster-admin"),
        ("{", r"dev\.json:1: expected YAML with the settings of rules"),
        ("[]", r"dev\.json:1: expected rules with their settings, got \[\]"),
        ('{"all": "advisory",\n}', r"dev\.json:[12]: expected JSON, got: "),
        ('{"all": "advisory",\n"all": "mandatory",\n"no-kesy": {}}', r"json:2: the key 'all' .*\n.*json:3: no-kesy: "),
    ],
)
def test_a_policy_file_that_no_engine_would_take_is_refused_before_one_starts(
    policy_file: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev.json").write_text(policy_file)
    files = Files(stack_file.stacks_folder(), tmp_path)
    monkeypatch.setattr("cli.preview.files_of_project", lambda: files)
    with pytest.raises(Halt, match=message):
        preview(DEV, Form.TEXT, Console())

"""What `multislice drift` makes of an engine's events, in the form in which the event log has them."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pulumi.automation import CommandError, EngineEvent
from rich.console import Console

from cli.answer import Form, Halt
from cli.drift import drift, find_drift
from cli.engines import PulumiEngine
from cli.sandbox_folder import lock_sandbox
from infra.review.preview import Difference, Drift
from sandbox import builds
from sandbox.site import create
from tests.cli.shown import read_output

QUEUE, POOL = "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", "gcp:container/nodePool:NodePool"


class RecordedEngine(PulumiEngine):
    """An engine that sends these events, and refuses the plan if it has a reason."""

    def __init__(self, events: Sequence[Mapping[str, Any]], refusal: str = "") -> None:
        self._events = events
        self._refusal = refusal

    def preview_after_refresh(self, on_event: Callable[[EngineEvent], None]) -> None:
        for event in self._events:
            on_event(EngineEvent.from_json(dict(event)))
        if self._refusal:
            raise CommandError(self._refusal)  # pyright: ignore[reportArgumentType]


def step(operation: str, kind: str, name: str, old: object, new: object, paths: Sequence[str]) -> dict[str, Any]:
    def state(inputs: object) -> object:
        return None if inputs is None else {"type": kind, "urn": name, "inputs": inputs}

    urn = f"urn:pulumi:dev::tpu-multislice::{kind}::{name}"
    differ = {path: {"diffKind": "update", "inputDiff": True} for path in paths}
    return {"op": operation, "urn": urn, "type": kind, "old": state(old), "new": state(new), "detailedDiff": differ}


def refreshed(kind: str, name: str, old: object, new: object, paths: Sequence[str] = ()) -> list[dict[str, Any]]:
    before, after = step("refresh", kind, name, old, old, ()), step("refresh", kind, name, old, new, paths)
    return [{"resourcePreEvent": {"metadata": before}}, {"resOutputsEvent": {"metadata": after}}]


def planned(operation: str, kind: str, name: str) -> list[dict[str, Any]]:
    answer = {"metadata": step(operation, kind, name, {}, {}, ("spec",))}
    return [{"resourcePreEvent": answer}, {"resOutputsEvent": answer}]


def test_what_is_gone_or_differs_is_drift_with_what_up_would_do() -> None:
    pool, found = {"labels": {"team": "a"}, "taints": [{"key": "x"}]}, {"labels": {}, "taints": [{"key": "y"}]}
    events = [
        *refreshed(POOL, "pool", pool, found, ['labels["team"]', "taints[0].key"]),
        *refreshed(QUEUE, "queue", {"spec": {}}, None),
        *refreshed(QUEUE, "clean", {"spec": {}}, {"spec": {}}),
        *planned("update", POOL, "pool"),
        *planned("create", QUEUE, "queue"),
        *planned("same", QUEUE, "clean"),
    ]
    gone, changed = sorted(find_drift("dev", RecordedEngine(events)).objects, key=lambda each: not each.gone)
    assert (gone.name, gone.gone, gone.differences, gone.repair) == ("queue", True, (), "create")
    assert (changed.name, changed.gone, changed.repair) == ("pool", False, "update")
    assert changed.differences == (
        Difference(path='labels["team"]', declared="a", found=None),
        Difference(path="taints[0].key", declared="x", found="y"),
    )


def test_a_change_of_the_program_is_pending_not_drift() -> None:
    found = find_drift("dev", RecordedEngine([*refreshed(POOL, "pool", {}, {}), *planned("update", POOL, "pool")]))
    assert (found.objects, [change.name for change in found.pending]) == ((), ["pool"])


def test_what_up_leaves_alone_is_said_to_be_left() -> None:
    events = [*refreshed(POOL, "pool", {"a": 1}, {"a": 2}, ["a"]), *planned("same", POOL, "pool")]
    assert [each.repair for each in find_drift("dev", RecordedEngine(events)).objects] == ["leave it"]


def test_without_an_engine_the_way_to_one_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Halt,
        match=f"a sandbox in the folder {tmp_path}, found none; `multislice up -s dev --sandbox {tmp_path}` creates",
    ):
        drift("dev", tmp_path, Form.TEXT, Console())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Halt, match="needs the program `pulumi` on PATH"):
        drift("dev", None, Form.TEXT, Console())


def test_a_sandbox_that_another_command_changes_is_left_alone(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    with lock_sandbox(site, "up"), pytest.raises(Halt, match="is using the sandbox"):
        drift("local", site.root, Form.TEXT, Console())


def test_a_stack_that_was_never_deployed_has_no_drift_to_look_for(tmp_path: Path) -> None:
    builds.prepare(lambda _: None)
    site = create(tmp_path / "sandbox")
    with pytest.raises(Halt, match=f"got one without resources; run `multislice up -s local --sandbox {site.root}`"):
        drift("local", site.root, Form.TEXT, Console())


@pytest.mark.parametrize(
    ("engine", "status"),
    [
        (RecordedEngine(refreshed(POOL, "pool", {}, {})), 0),
        (RecordedEngine(refreshed(POOL, "pool", {"a": 1}, {"a": 2}, ["a"])), 2),
        (RecordedEngine(refreshed(POOL, "pool", {"a": 1}, {"a": 2}, ["a"]), "the budget has expired"), 1),
    ],
)
def test_the_exit_status_says_clean_from_drift_from_fault(
    engine: RecordedEngine, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(path: Path, sandbox: Path | None, command: str) -> AbstractContextManager[RecordedEngine]:
        del path, sandbox, command
        return nullcontext(engine)

    monkeypatch.setattr("cli.engines.open_engine", asked)
    console = Console(file=io.StringIO(), highlight=False)
    assert drift("dev", None, Form.JSON, console) == status
    found = Drift.model_validate(json.loads(read_output(console)))
    assert [each.name for each in found.objects] == (["pool"] if status else [])
    if status == 1:
        assert [each.repair for each in found.objects] == [None]
        assert "the budget has expired" in found.errors[0]

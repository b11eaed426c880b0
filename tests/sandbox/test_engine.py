from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pulumi import automation
from pulumi.automation import CommandError, CommandResult, EngineEvent

from sandbox import builds
from sandbox.engine import STACK_TYPE, OnEvent, stack_in, with_second_try
from sandbox.site import create
from tests.chain.stack import ignore


@pytest.mark.costs(cpu_seconds=8)
def test_the_state_is_kept_only_in_files_that_are_replaced_as_a_whole(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    stack_in(site, builds.prepare(ignore), "local", lambda: None).up()
    kept = [path.name for path in (site.root / "state").rglob("local*") if path.is_file()]
    assert "local.json" in kept
    assert [name for name in kept if name.endswith(".attrs")] == []


UNREACHED = "error: Resource monitor has terminated, shutting down"
REFUSED = (
    'error: Exception calling application: <_InactiveRpcError of RPC that terminated with: details = "failed to connect'
    ' to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:35563: Connection refused"'
)


def failure(text: str) -> CommandError:
    return CommandError(CommandResult(stdout=text, stderr="", code=1))


class Engine:
    """Fails with what it is given, one after the other, and then succeeds; each time it first declares a resource."""

    def __init__(self, *failures: str, of_type: str = STACK_TYPE) -> None:
        self.failures, self.of_type, self.begun = [*failures], of_type, 0

    def __call__(self, on_event: OnEvent) -> str:
        self.begun += 1
        on_event(declared(self.of_type))
        if not self.failures:
            return "done"
        text = self.failures.pop(0)
        on_event(said(text))
        raise failure(text)


def declared(resource_type: str) -> EngineEvent:
    facts: dict[str, Any] = {"type": resource_type, "op": "create", "urn": "urn", "provider": ""}
    return _event(resourcePreEvent={"metadata": facts, "planning": False})


def said(text: str) -> EngineEvent:
    return _event(diagnosticEvent={"message": text, "color": "never", "severity": "error"})


def _event(**content: Any) -> EngineEvent:
    from_json = cast(Callable[[dict[str, Any]], EngineEvent], automation.EngineEvent.from_json)
    return from_json({"sequence": 1, "timestamp": 1, **content})


@pytest.mark.parametrize("text", [UNREACHED, REFUSED], ids=["declaring", "logging"])
def test_a_program_that_could_not_reach_the_engine_is_begun_once_more_without_a_word(text: str) -> None:
    engine, events = Engine(text), list[EngineEvent]()
    assert with_second_try(engine, events.append) == "done"
    assert engine.begun == 2
    assert [event.diagnostic_event for event in events] == [None, None]


@pytest.mark.parametrize(
    ("engine", "begun", "shown"),
    [
        (Engine("error: quota exceeded"), 1, ["error: quota exceeded"]),
        (Engine(UNREACHED, of_type="gcp:storage/bucket:Bucket"), 1, []),
        (Engine(UNREACHED, UNREACHED), 2, [UNREACHED]),
    ],
    ids=["another fault", "something was declared", "a second time"],
)
def test_every_other_failure_is_raised(engine: Engine, begun: int, shown: list[str]) -> None:
    events = list[EngineEvent]()
    with pytest.raises(CommandError):
        with_second_try(engine, events.append)
    assert engine.begun == begun
    assert [event.diagnostic_event.message for event in events if event.diagnostic_event] == shown

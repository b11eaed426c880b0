"""What is logged when the delete of an object fails."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pulumi
import pytest

from infra import objects
from infra.cluster.kubernetes import ApiServer

QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"


def _log_holders(monkeypatch: pytest.MonkeyPatch, operation: str, answer: Callable[[], list[str]]) -> list[str]:
    """What the hook prints when `operation` on a queue fails and the cluster gives this answer."""
    logged: list[str] = []
    asked: list[Callable[[pulumi.ErrorHookArgs], Coroutine[Any, Any, bool]]] = []
    monkeypatch.setattr(pulumi, "ErrorHook", lambda _, hook: asked.append(hook))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(pulumi.log, "error", logged.append)
    monkeypatch.setattr(ApiServer, "at", lambda host: host)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(objects, "holders", lambda *_: answer())
    endpoint = cast(Any, type("Known", (), {"future": lambda _: asyncio.sleep(0, "host")})())
    objects.explain_stuck_deletes("told-when-stuck", endpoint)
    failure = pulumi.ErrorHookArgs(
        urn="urn",
        id="id",
        name="quota",
        type=QUEUE,
        failed_operation=operation,
        errors=["timed out"],
        old_inputs={"metadata": {"name": "research"}},
    )
    assert asyncio.run(asked[0](failure)) is False
    return logged


def test_the_holders_of_an_object_are_logged_when_its_deletion_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = _log_holders(monkeypatch, "delete", lambda: ["Workload research/by-hand uses its quota"])
    assert logged == ["ClusterQueue research cannot be deleted: Workload research/by-hand uses its quota"]


def test_nothing_is_asked_of_the_cluster_when_something_else_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _log_holders(monkeypatch, "update", lambda: ["never asked"]) == []


def test_a_cluster_that_does_not_answer_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise OSError("unreachable")

    assert _log_holders(monkeypatch, "delete", fail) == []

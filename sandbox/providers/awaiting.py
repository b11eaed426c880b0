"""When an object counts as ready: built-in rules and the `pulumi.com/waitFor` annotation.

Owns the conditions and the polling. Differs from the published provider in what it awaits without
an annotation: Deployment, Namespace and CustomResourceDefinition alone.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object

WAIT_FOR = "pulumi.com/waitFor"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"

DEFAULT_TIMEOUT_SECONDS = 600.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 1.0

type Unmet = Callable[[Object], str]
"""Says what an object still lacks; empty when it is ready."""


class WaitTimeoutError(Refusal):
    """An object did not become what was awaited in time."""


def requirement(inputs: Object) -> Unmet | None:
    """What the object must become before its creation counts as done; None when nothing."""
    annotations = annotations_of(inputs)
    if annotations.get(SKIP_AWAIT) == "true":
        return None
    if WAIT_FOR not in annotations:
        return _BUILT_IN.get(inputs["kind"])
    text = annotations[WAIT_FOR]
    checks = [_expression(item) for item in (json.loads(text) if text.startswith("[") else [text])]

    def unmet(live: Object) -> str:
        return _generation_unmet(live) or "; ".join(filter(None, (check(live) for check in checks)))

    return unmet


def timeout_of(inputs: Object, requested_seconds: float) -> float:
    """The resource option wins over the annotation, as in the published provider."""
    return requested_seconds or float(annotations_of(inputs).get(TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS))


def annotations_of(manifest: Object) -> dict[str, str]:
    """The annotations of an object, empty when it has none."""
    return manifest.get("metadata", {}).get("annotations") or {}


def poll(unmet: Callable[[], str], timeout_seconds: float) -> None:
    """Block until `unmet` says nothing.

    Raises:
        WaitTimeoutError: it still says something after `timeout_seconds`.
    """
    deadline, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
    while lack := unmet():
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"timed out after {timeout_seconds:g} s: {lack}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)


def select(path: str, value: Any) -> list[Any]:
    """The values at a JSONPath of names, `[0]`, `[*]` and `['a.b']`.

    Raises:
        Refusal: the path has something else in it.
    """
    values: list[Any] = [value]
    for step in _steps(path):
        values = [item for found in values for item in _stepped(found, step)]
    return values


_STEP = re.compile(
    r"""\.(?P<name>[\w-]+)|\[(?P<index>-?\d+)\]|(?P<all>\[\*\])|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]"""
)


def _steps(path: str) -> Iterator[re.Match[str]]:
    text, position = path.strip().removeprefix("{").removesuffix("}").removeprefix("$"), 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise Refusal(f"{WAIT_FOR}: {path!r} has a step the sandbox does not know, {text[position:]!r}")
        yield step
        position = step.end()


def _stepped(value: Any, step: re.Match[str]) -> list[Any]:
    if isinstance(value, dict):
        key = step["name"] or step["key"]
        return list(value.values()) if step["all"] else [value[key]] if key in value else []
    if not isinstance(value, list):
        return []
    if step["all"]:
        return value
    index = int(step["index"] or len(value))
    return [value[index]] if -len(value) <= index < len(value) else []


def _expression(text: str) -> Unmet:
    form, _, rest = text.partition("=")
    if form == "condition":
        kind, _, status = rest.partition("=")
        return lambda live: _condition_unmet(live, kind, status or "True")
    if form == "jsonpath":
        path, brace, wanted = rest.partition("}")
        return lambda live: _path_unmet(live, path + brace, wanted.removeprefix("="))
    raise Refusal(f"{WAIT_FOR}: expected `condition=TYPE[=STATUS]` or `jsonpath={{PATH}}[=VALUE]`, got {text!r}")


def _path_unmet(live: Object, path: str, wanted: str) -> str:
    found = [item for item in select(path, live) if item not in (None, "")]
    if not found:
        return f"{path} has no value"
    texts = [item if isinstance(item, str) else json.dumps(item) for item in found]
    return f"{path} is {', '.join(texts)}, not {wanted}" if wanted and wanted not in texts else ""


def _condition_unmet(live: Object, kind: str, status: str) -> str:
    for condition in live.get("status", {}).get("conditions") or []:
        if condition["type"].lower() == kind.lower():
            told = f": {condition.get('message', '')}".rstrip(": ")
            return "" if condition["status"].lower() == status.lower() else f"{kind} is {condition['status']}{told}"
    return f"no condition {kind} yet"


def _generation_unmet(live: Object) -> str:
    observed = live.get("status", {}).get("observedGeneration")
    if observed is None or observed >= live["metadata"].get("generation", 0):
        return ""
    return "its controller has not seen the newest generation"


def _deployment_unmet(live: Object) -> str:
    wanted, status = live["spec"].get("replicas", 1), live.get("status", {})
    if "observedGeneration" not in status:
        return "its controller has not seen it"
    ready = status.get("availableReplicas", 0)
    return _generation_unmet(live) or ("" if ready >= wanted else f"{ready} of {wanted} replicas are available")


def _namespace_unmet(live: Object) -> str:
    phase = live.get("status", {}).get("phase", "unset")
    return "" if phase == "Active" else f"phase is {phase}"


_BUILT_IN: dict[str, Unmet] = {
    "Deployment": _deployment_unmet,
    "Namespace": _namespace_unmet,
    "CustomResourceDefinition": lambda live: _condition_unmet(live, "Established", "True"),
}

"""Stacks that the program of commit 5f944f3 deployed, before its parts had the three components as parents."""

import json
import re
from pathlib import Path
from typing import Any

URNS = Path(__file__).parent / "former-urns.txt"
"""What that program registered for the stack `local`, as the recording names it."""
_COMPONENT = re.compile(r"tpu-multislice:infra:(Foundation|Fleet|Job)\$")
_QUEUE_OF_A_JOB = re.compile(r"tpu-multislice:infra:Job\$(kubernetes:kueue\.x-k8s\.io/\w+:LocalQueue::)")
_URN = re.compile(r'urn:pulumi:[^"]+')
_NEW = tuple(f"tpu-multislice:infra:{name}" for name in ("Foundation", "Fleet", "Job"))


def former_urn(urn: str) -> str:
    """The URN of the same resource in such a stack."""
    urn = urn.replace(":Stash::marker-", ":Stash::footing-").replace(":Stash::slice-dependencies", ":Stash::ground")
    return _COMPONENT.sub("", _QUEUE_OF_A_JOB.sub(r"tpu-multislice:infra:Queues$\1", urn))


def former_state(deployment: dict[str, Any]) -> dict[str, Any]:
    """The same resources as such a stack has them."""
    new = {each["urn"] for each in deployment["resources"] if each["type"] in _NEW}
    (stack,) = (each["urn"] for each in deployment["resources"] if each["type"] == "pulumi:pulumi:Stack")
    kept = [_without(each, new, stack) for each in deployment["resources"] if each["urn"] not in new]
    queues = next(each["urn"] for each in kept if each["type"] == "tpu-multislice:infra:Queues")
    for each in kept:
        if _QUEUE_OF_A_JOB.search(each["urn"]):
            each["parent"] = queues
    text = json.dumps({**deployment, "resources": kept})
    return json.loads(_URN.sub(lambda found: former_urn(found.group()), text))


def _without(value: Any, new: set[str], stack: str) -> Any:
    """The value without dependencies on the components, with the stack in place of them as parent."""
    if isinstance(value, dict):
        return {key: _without(item, new, stack) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, new, stack) for item in value if not (isinstance(item, str) and item in new)]
    return stack if isinstance(value, str) and value in new else value

"""The sandbox's `docker-build` plugin, which builds no image: pods of the sandbox run the checkout.

An image gets a digest that depends on its inputs, so that it changes when they do. No registry receives it.
"""

import hashlib
import json
from typing import override

from infra.cluster.kubernetes import Json
from sandbox.providers.plugin import Diff, Plugin, Resource, serve
from sandbox.providers.values import UNKNOWN, changes, has_unknown, reveal


class DockerBuildPlugin(Plugin):
    """Images that exist only in Pulumi's state."""

    def __init__(self) -> None:
        super().__init__("pulumi_docker_build")

    @override
    def diff(self, old: Resource, new: Json) -> Diff:
        return Diff(tuple(changes(reveal(old.inputs), reveal(new))), frozenset(), same_name=False)

    @override
    def create(self, urn: str, inputs: Json, timeout_seconds: float, *, preview: bool) -> tuple[str, Json]:
        state = _built(inputs, preview=preview)
        return ("" if preview else state["digest"]), state

    @override
    def update(self, old: Resource, new: Json, timeout_seconds: float, *, preview: bool) -> Json:
        return _built(new, preview=preview)


def _built(inputs: Json, *, preview: bool) -> Json:
    """Return the inputs with the digest of the image. It is unknown in previews, and as long as an input is."""
    given = reveal(inputs)
    if preview or has_unknown(given):
        return {**inputs, "digest": UNKNOWN, "ref": UNKNOWN}
    digest = f"sha256:{hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()}"
    return {**inputs, "digest": digest, "ref": f"{given['exports'][0]['registry']['names'][0]}@{digest}"}


if __name__ == "__main__":
    serve(DockerBuildPlugin())

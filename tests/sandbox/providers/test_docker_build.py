from typing import Any

from sandbox.providers.docker_build import DockerBuildPlugin
from sandbox.providers.plugin import Resource
from sandbox.providers.values import UNKNOWN

URN = "urn:pulumi:dev::project::docker-build:index:Image::trainer"


def inputs(name: str) -> dict[str, Any]:
    return {"exports": [{"registry": {"names": [name], "push": True}}]}


def test_an_image_has_a_digest_that_changes_with_its_inputs() -> None:
    plugin = DockerBuildPlugin()
    digest, state = plugin.create(URN, inputs("registry/one"), 0, preview=False)
    assert state["ref"] == f"registry/one@{digest}"
    image = Resource(URN, digest, inputs("registry/one"), state)
    assert not plugin.diff(image, inputs("registry/one")).changes
    assert plugin.diff(image, inputs("registry/two")).changes
    assert plugin.update(image, inputs("registry/two"), 0, preview=False)["digest"] != digest
    assert plugin.read(image) == (inputs("registry/one"), state)


def test_a_preview_does_not_know_the_digest() -> None:
    assert DockerBuildPlugin().create(URN, inputs("registry/one"), 0, preview=True)[1]["digest"] == UNKNOWN
    assert DockerBuildPlugin().create(URN, inputs(UNKNOWN), 0, preview=False)[1]["digest"] == UNKNOWN

"""A stack in a cluster that exists already."""

from typing import Any

import pytest

from infra.existing.checks import Needs
from infra.stack.settings.read import parse
from tests.infra.recording import stack_values


@pytest.fixture
def needs() -> Needs:
    """What `dev` needs of the cluster."""
    values: Any = stack_values("dev")
    values["cluster"] = {"name": "research", "existing": {"name": "shared", "location": "us-east5"}}
    settings = parse(values)
    assert settings.cluster.existing
    return Needs.of(settings, settings.cluster.existing)

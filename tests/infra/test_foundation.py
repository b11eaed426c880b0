"""What a foundation refuses."""

import pytest

from infra.foundation import FoundationArgs
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.infra.recording import stack_values

SETTINGS = parse(stack_values("local"))


def test_all_errors_of_a_foundation_are_reported_before_anything_is_declared() -> None:
    elsewhere = SETTINGS.cloud.model_copy(update={"zone": "us-east1-b"})
    network = SETTINGS.network.model_copy(update={"services": SETTINGS.network.nodes})
    with pytest.raises(SettingsError) as refused:
        FoundationArgs(cloud=elsewhere, cluster=SETTINGS.cluster, network=network)
    assert [error.path for error in refused.value.errors] == ["cloud.zone", "network.services"]

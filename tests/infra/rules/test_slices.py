"""What a slice group may not ask for."""

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.recording import Values


def told(values: Values) -> dict[str, str]:
    with pytest.raises(SettingsError) as raised:
        parse(values)
    return {fault.path: str(fault) for fault in raised.value.errors}


def test_a_second_network_needs_a_second_interface(values: Values) -> None:
    values["slices"]["trillium"] |= {"generation": "v5e", "second_network": True}
    values["job"]["host_network"] = True
    machines = "ct6e-standard-1t, ct6e-standard-4t, ct6e-standard-8t, tpu7x-standard-4t"
    assert f"{machines}, got ct5lp-hightpu-4t" in told(values)["slices.trillium.second_network"]


def test_a_second_network_needs_a_job_that_sees_it(values: Values) -> None:
    values["slices"]["trillium"]["second_network"] = True
    assert "got job tiny without host_network; write job.host_network: true" in str(told(values))
    values["slices"]["other"] = values["slices"]["trillium"] | {"second_network": False}
    values["job"]["slices"]["group"] = "other"
    values["teams"]["research"]["quota"]["other"] = 16
    assert parse(values).second_network


def test_a_disk_image_is_named_in_full(values: Values) -> None:
    values["slices"]["trillium"]["image_disk"] = "trainer-images"
    assert "projects/PROJECT/global/images/IMAGE" in told(values)["slices.trillium.image_disk"]

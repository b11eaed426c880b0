"""Secrets in a stack file."""

import json
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi import runtime

from infra.configuration import load
from infra.stack.pods import render_pods
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.values import HIDDEN, hide_encrypted
from infra.stack.tpu import resolve
from sandbox.tpu_environment import TpuWorker, cluster_variables, device_plugin_variables, process_variables
from tests.infra.one_job import submitted
from tests.infra.recording import Values
from tests.infra.spoiling import errors_of

CANARY = "hf_canary"
ENCRYPTED = {"secure": "v1:abc:def"}


def _loaded(values: Values, *secret: str) -> Any:
    config = {f"tpu-multislice:{section}": json.dumps(value) for section, value in values.items()}
    runtime.set_all_config(config, [f"tpu-multislice:{section}" for section in secret])
    return load(pulumi.Config("tpu-multislice"))


def _set_by_the_platform() -> set[str]:
    """What the sandbox puts into a pod in GKE's place, and what the program itself does."""
    worker = TpuWorker(("a", "b"), worker_id=0, slice_id=0, slice_count=2, coordinator="a")
    machine = device_plugin_variables(resolve("7x", "2x2x2", None), 4)
    return {"JOB_COMPLETION_INDEX", *cluster_variables(worker), *process_variables(worker, 2), *machine}


def test_settings_know_the_names_of_secrets_and_no_value(values: Values) -> None:
    values["secrets"] = {"HF_TOKEN": CANARY, "WANDB_API_KEY": CANARY}
    settings = _loaded(values, "secrets")
    assert dict(settings.secrets) == {"HF_TOKEN": HIDDEN, "WANDB_API_KEY": HIDDEN}
    assert CANARY not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "written",
    [{"HF_TOKEN": CANARY}, {"HF_TOKEN": {"token": CANARY}}, {"HF_TOKEN": [CANARY]}, {CANARY: 5}, CANARY, [CANARY]],
    ids=str,
)
def test_a_secret_in_plain_is_refused_without_being_shown(values: Values, written: object) -> None:
    values["secrets"] = written
    (text,) = errors_of(values).values()
    assert "not shown here" in text
    assert "revoke it" in text
    assert CANARY not in text.replace(f"secrets.{CANARY}", "")


@pytest.mark.parametrize("value", ["", 5, None, {"token": CANARY}])
def test_only_text_that_is_not_empty_can_be_a_variable(values: Values, value: object) -> None:
    values["secrets"] = {"HF_TOKEN": value}
    with pytest.raises(SettingsError, match=r"secrets\.HF_TOKEN: expected a text") as raised:
        _loaded(values, "secrets")
    assert CANARY not in str(raised.value)


def test_a_name_must_be_a_variable_that_nothing_else_sets(values: Values) -> None:
    environment: Any = render_pods(submitted(values)).slices["spec"]
    own = {variable["name"] for variable in environment["containers"][0]["env"]}
    taken = sorted(own | _set_by_the_platform())
    values["secrets"] = dict.fromkeys([*taken, "2nd", "a-b"], HIDDEN)
    assert sorted(errors_of(values)) == sorted(f"secrets.{name}" for name in values["secrets"])


@pytest.mark.parametrize(
    ("section", "inner"), [("cluster", "name"), ("job", "team"), ("teams", "research"), ("slices", "trillium")]
)
def test_a_secret_in_another_section_is_refused_by_its_key_alone(values: Values, section: str, inner: str) -> None:
    values[section][inner] = CANARY
    with pytest.raises(SettingsError, match=rf"^.*1 error.*\n.*{section}: .* got a Pulumi secret") as raised:
        _loaded(values, section)
    assert CANARY not in str(raised.value)
    values[section][inner] = ENCRYPTED
    found = errors_of({name: hide_encrypted(value) for name, value in values.items()})
    assert list(found) == [f"{section}.{inner}"]


@given(st.sampled_from(["cloud", "cluster", "slices", "teams", "image", "job", "labels", "allow_interruption"]))
def test_no_value_of_a_hidden_section_reaches_a_fault(section: str) -> None:
    with pytest.raises(SettingsError) as raised:
        _loaded({section: {CANARY: CANARY}}, section)
    assert CANARY not in str(raised.value)

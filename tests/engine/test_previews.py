from pathlib import Path

import pytest
import yaml
from pulumi.automation import EngineEvent

from sandbox import builds, programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine, PolicyPack
from sandbox.site import create
from tests.chain.stack import ignore, reviews
from tests.policy.lasting import without_expiry

STACKS = {path.stem.removeprefix("Pulumi."): path for path in sorted((CHECKOUT / "stacks").glob("Pulumi.*.yaml"))}


@pytest.mark.costs(cpu_seconds=15)
@pytest.mark.parametrize(
    "stack", ["dev", *(pytest.param(stack, marks=pytest.mark.complete) for stack in STACKS if stack != "dev")]
)
def test_every_stack_previews_without_a_cluster_and_logs_its_review(stack: str, tmp_path: Path):
    builds.prepare(ignore)
    events: list[EngineEvent] = []
    pack = PolicyPack(CHECKOUT / "policy", without_expiry(CHECKOUT / "policy" / "stacks" / f"{stack}.json", tmp_path))
    planned = Engine(create(tmp_path / "site"), programs.found(), STACKS[stack], pack).preview(events.append)
    assert [event.policy_event for event in events if event.policy_event] == []
    assert set(planned.change_summary) == {"create"}
    (told,) = reviews(events)
    assert told.startswith(f"review of {stack}\n\nPrice  ")
    # The others are examples, with values that `up` refuses.
    assert ("`up` refuses this stack" in told) == (stack != "local")
    assert "simulated for an empty cluster" in told


@pytest.mark.complete
def test_a_stack_file_whose_secrets_are_encrypted_for_another_backend_previews_as_well(tmp_path: Path):
    content = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())
    content["config"]["tpu-multislice:secrets"] = {"HF_TOKEN": {"secure": "v1:c29tZWJvZHk=:ZWxzZQ=="}}
    stack_file = tmp_path / "Pulumi.local.yaml"
    stack_file.write_text(yaml.safe_dump(content | {"secretsprovider": "gcpkms://projects/p", "encryptedkey": "a2V5"}))
    builds.prepare(ignore)
    events: list[EngineEvent] = []
    Engine(create(tmp_path / "site"), programs.found(), stack_file).preview(events.append)
    planned = [event.resource_pre_event.metadata.urn for event in events if event.resource_pre_event]
    assert [urn.rpartition("::")[2] for urn in planned].count("secrets-tiny") == 1

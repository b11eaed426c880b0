"""The guard refuses what would take from a running job what it needs; `test_changes` tries every way around it."""

import copy

import pytest
from pulumi.automation import CommandError

from tests.chain.shared import JOB, SAVE_EVERY, shared
from tests.chain.stack import Chain, ignore


@pytest.mark.costs(cpu_seconds=30)
def test_a_preview_that_would_replace_slices_of_a_running_job_is_refused(stack: Chain):
    stack.wait_for_step(JOB, SAVE_EVERY + 1)
    spot = shared()
    spot["slices"]["trillium"]["capacity"] = "spot"
    with pytest.raises(CommandError) as refused:
        stack.engine_on(spot).preview(ignore)
    told = str(refused.value)
    assert "slices.trillium.capacity.kind: on-demand -> spot" in told
    assert f"job {JOB} in namespace research runs on trillium-" in told
    assert "its last checkpoint is step" in told
    assert "write tpu-multislice:allow_interruption: true" in told


@pytest.mark.costs(cpu_seconds=30)
def test_a_preview_that_would_delete_the_namespace_of_a_running_job_is_refused(stack: Chain):
    stack.wait_for_step(JOB, SAVE_EVERY + 1)
    moved = copy.deepcopy(shared())
    moved["teams"]["research"]["namespace"] = "elsewhere"
    with pytest.raises(CommandError) as refused:
        stack.engine_on(moved).preview(ignore)
    told = str(refused.value)
    assert "teams.research.namespace: research -> elsewhere" in told
    assert f"job {JOB} in namespace research runs on trillium-" in told


@pytest.mark.costs(cpu_seconds=30)
def test_pulumi_destroy_is_refused_under_a_running_job_and_deletes_nothing(stack: Chain):
    before = stack.identity(JOB)
    refused = stack.pulumi("destroy", "--yes", "--stack", "local")
    assert refused.returncode
    told = " ".join(refused.stdout.split())
    assert f"job {JOB} in namespace research is running; wait until it has ended, set its `paused`" in told
    assert stack.identity(JOB) == before
    assert " deleted" not in refused.stdout

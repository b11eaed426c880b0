"""The end of the shared stack: nothing left to change, nothing left behind; and what a later `up` finds again."""

import io
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from cli.down import Consent, down
from cli.up import up
from infra.cluster.kubernetes import ApiError, Json
from infra.stack.names import IN_USE, KUEUE_NAMESPACE
from sandbox import daemon
from sandbox.site import taken_ports
from tests.chain.shared import JOB, SAVE_EVERY, STEPS, shared
from tests.chain.stack import NAMESPACE, Chain, Operations, ignore, processes_of, wait_until
from tests.infra.former import former_state


@pytest.mark.costs(cpu_seconds=40)
def test_a_clean_stack_shows_no_change_even_after_a_refresh_has_read_what_controllers_wrote(stack: Chain):
    engine = stack.engine_on(shared())
    engine.refresh(ignore)
    assert set(engine.preview(ignore).change_summary) == {"same"}


@pytest.mark.complete
def test_a_stack_that_an_earlier_program_deployed_keeps_all_its_resources(stack: Chain, tmp_path: Path):
    exported = json.loads(stack.pulumi("stack", "export", "--stack", "local").stdout)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps({**exported, "deployment": former_state(exported["deployment"])}))
    imported = stack.pulumi("stack", "import", "--stack", "local", "--file", str(earlier))
    assert imported.returncode == 0, imported.stderr
    engine, operations = stack.engine_on(shared()), Operations()
    engine.preview(operations)
    engine.up(operations)
    assert operations.changes == set()
    assert set(engine.preview(ignore).change_summary) == {"same"}


def _foreign(kind: str, group: str) -> Json:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "tutorial"}}


NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}, "containers": [{"name": "main", "image": "any"}]}
POD = {"restartPolicy": "Never", **NOWHERE}
JOB_OF_OTHERS = {
    **_foreign("JobSet", "jobset.x-k8s.io/v1alpha2"),
    "spec": {"replicatedJobs": [{"name": "main", "template": {"spec": {"template": {"spec": POD}}}}]},
}


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (_foreign("ResourceFlavor", "kueue.x-k8s.io/v1beta2"), "ResourceFlavor tutorial was not made by this stack"),
        (_foreign("Namespace", "v1"), "Namespace tutorial was not made by this stack"),
        (JOB_OF_OTHERS, "job tutorial in namespace default is running"),
    ],
)
def test_what_the_stack_did_not_make_keeps_a_destroy_from_beginning(stack: Chain, manifest: Json, told: str):
    wait_until(lambda: not _refusal(stack), lambda: _refusal(stack))
    stack.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    try:
        wait_until(lambda: told in _refusal(stack), lambda: _refusal(stack))
    finally:
        stack.kubectl("delete", manifest["kind"], "tutorial")


def _refusal(stack: Chain) -> str:
    """What the API server says against deleting the mark; empty if it would."""
    try:
        stack.api.request(
            "DELETE", f"/api/v1/namespaces/{KUEUE_NAMESPACE}/configmaps/{IN_USE}", query={"dryRun": "All"}
        )
    except ApiError as error:
        return str(error)
    return ""


# The processes of the sandbox end here, and what they have used since it was started counts.
@pytest.mark.costs(cpu_seconds=900)
def test_down_leaves_the_bucket_and_no_object_node_process_or_port(stack: Chain):
    engine, console = stack.engine_on(shared()), _console()
    assert engine.destroyable()
    assert down(stack.written(shared()), stack.site.root, Consent(), console) == 0
    assert "kept: gs://sandbox-local-checkpoints" in _told(console)
    assert engine.resources() == []
    assert [record.name.partition("-")[0] for record in stack.site.cloud.iterdir()] == ["storage.Bucket"]
    assert (stack.run_folder(JOB) / "checkpoints" / str(STEPS)).is_dir()
    assert taken_ports(stack.site) == []
    wait_until(lambda: processes_of(stack.site) == [], lambda: str(processes_of(stack.site)))


@pytest.mark.complete
def test_a_second_down_is_one_quiet_line(stack: Chain):
    console = _console()
    assert down(stack.written(shared()), stack.site.root, Consent(), console) == 0
    assert _told(console).startswith("nothing to take down")


@pytest.mark.complete
def test_up_after_down_resumes_from_the_kept_checkpoint_and_tells_so(stack: Chain):
    more = {"steps": STEPS + 4, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS}
    console = _console()
    stack_file = stack.stack_file(name=JOB, existing_run="resume", training=more)
    assert up(stack_file, stack.site.root, console) == 0
    assert list(stack.losses(JOB)) == list(range(1, STEPS + 5))
    assert f"resumed at step {STEPS}" in _told(console)
    run = stack.run_folder(JOB).name
    assert f"checkpoints      gs://sandbox-local-checkpoints/{JOB}/runs/{run}" in _told(console)


@pytest.mark.complete
def test_objects_survive_a_stop_of_the_sandbox(stack: Chain):
    assert daemon.stop(stack.site)
    daemon.start(stack.site, ignore)
    assert stack.jobset(JOB)["status"]["terminalState"] == "Completed"
    wait_until(lambda: _takes_jobs(stack), lambda: "the operators do not answer")


def _takes_jobs(chain: Chain) -> bool:
    """Whether JobSet and Kueue answer for a job."""
    try:
        chain.kubectl("label", "jobset", JOB, "-n", NAMESPACE, "probe=1", "--dry-run=server")
    except AssertionError:
        return False
    return True


def _console() -> Console:
    return Console(file=io.StringIO(), width=200)


def _told(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()

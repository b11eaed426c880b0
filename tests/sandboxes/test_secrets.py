"""A random canary as a secret of the stack, through its life: it lies in the clear where it belongs and nowhere else.

Allowed: the Kubernetes Secret, etcd behind it, the environment of the pod's processes. Looked into is every
file of the sandbox: state and its history, stack file, saved plan, the records of the cloud, logs of
all servers, plugins and pods, and the job's files in the bucket, of which arrays alone are compressed in
a way that is not undone here.
"""

import base64
import gzip
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil
import pytest
from pulumi.automation import CommandError, ConfigValue, EngineEvent

from sandbox.engine import Engine
from sandbox.node_agent.pod_process import FOLDER_VARIABLE
from tests.chain.stack import NAMESPACE, Chain, wait_until

pytestmark = pytest.mark.complete

JOB = "guarded-by-secrets"
VARIABLE = "TRACKER_TOKEN"
OTHER_MANAGER = ("apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f-")
SECRET_OF_ANOTHER = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": f"{JOB}-secrets", "namespace": NAMESPACE},
}


class Opened(Engine):
    """An engine whose stack a test may use as a person would."""

    def hide(self, path: str, value: str) -> None:
        """`pulumi config set --secret --path`."""
        self._stack.set_config(f"tpu-multislice:{path}", ConfigValue(value, secret=True), path=True)

    def printed(self, *command: str) -> str:
        """What a command of Pulumi prints about the stack; the Automation API itself asks for secrets in plain."""
        return self._pulumi(*command)


@dataclass
class Told:
    """Everything that the engine says, events and errors."""

    said: list[str] = field(default_factory=list[str])

    def __call__(self, event: EngineEvent) -> None:
        self.said.append(json.dumps(event, default=_told))

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@dataclass(frozen=True)
class Life:
    """What was found while the stack lived."""

    canaries: tuple[str, str]
    """Before and after the secret is changed."""
    environments: list[str | None]
    """The variable in the pod's process: at the first start, after the change, at the next start."""
    jobs: list[str]
    """The job's identity, as often."""
    errors: list[str]
    told: Told
    printed: list[str]
    """State, history and configuration, as Pulumi shows them."""


@pytest.fixture(scope="module")
def life(chain: Chain) -> Life:
    """Plan, faults, up, a changed secret, an error of the provider, a crash, the end."""
    first, second = (f"canary-{token_hex(16)}" for _ in range(2))
    told, errors = Told(), list[str]()
    engine = _engine(chain, first)
    engine.hide("job.team", first)
    errors.append(_refused(engine, told))
    engine = _engine(chain, first)
    engine.preview(told, chain.site.root / "plan.json")
    engine.up(told)
    chain.wait_for_step(JOB, 2)
    environments, jobs = [_environment(chain)], [chain.jobset(JOB)["metadata"]["uid"]]
    engine = _engine(chain, second)
    taken = SECRET_OF_ANOTHER | {"data": {VARIABLE: base64.b64encode(b"another").decode()}}
    chain.kubectl(*OTHER_MANAGER, stdin=json.dumps(taken))
    errors.append(_refused(engine, told))
    chain.kubectl(*OTHER_MANAGER, stdin=json.dumps(SECRET_OF_ANOTHER))
    engine.up(told)
    environments.append(_environment(chain))
    jobs.append(chain.jobset(JOB)["metadata"]["uid"])
    os.kill(crashed := chain.host_pid(f"{JOB}-slice-0-0"), signal.SIGABRT)
    wait_until(lambda: crashed not in _hosts(chain) and bool(_hosts(chain)), lambda: "no second start")
    environments.append(_environment(chain))
    jobs.append(chain.jobset(JOB)["metadata"]["uid"])
    shown = [engine.printed(*command) for command in (("stack", "export"), ("stack", "history", "--json"), ("config",))]
    return Life((first, second), environments, jobs, errors, told, shown)


def test_the_secret_is_in_the_environment_of_the_process_and_a_changed_one_comes_with_its_next_start(life: Life):
    first, second = life.canaries
    assert life.environments == [first, first, second]


def test_a_changed_secret_is_told_by_name_and_leaves_the_job_alone(chain: Chain, life: Life):
    assert f"secrets of job {JOB} change: {VARIABLE}. Its running pods keep the old values" in life.told.text
    assert len(set(life.jobs)) == 1
    assert chain.jobset(JOB)["status"].get("restarts", 0) == 0


def test_faults_and_errors_name_the_key_and_not_the_value(life: Life):
    fault, conflict = life.errors
    assert "job: expected a plain value" in fault
    assert f".data.{VARIABLE}" in conflict
    _assert_nowhere(life, "\n".join(life.errors))


def test_engine_events_and_records_do_not_show_it(life: Life):
    assert f"{JOB}-secrets" in life.told.text
    assert all(life.printed)
    _assert_nowhere(life, "\n".join([life.told.text, *life.printed]))


def test_of_all_objects_in_the_cluster_the_secret_alone_holds_it(chain: Chain, life: Life):
    kinds = chain.kubectl("api-resources", "--verbs=list", "-o=name").split()
    holders = [
        (found["kind"], found["metadata"]["name"])
        for found in json.loads(chain.kubectl("get", ",".join(kinds), "-A", "-o", "json"))["items"]
        if _occurs(life, json.dumps(found).encode())
    ]
    assert holders == [("Secret", f"{JOB}-secrets")]


def test_of_all_files_of_the_sandbox_those_of_etcd_alone_hold_it(chain: Chain, life: Life):
    searched, holders = set[str](), set[str]()
    for path, content in _contents(chain.site.root):
        searched.add(path)
        if _occurs(life, content):
            holders.add(path.split("/")[0])
    assert holders == {"etcd"}
    for kind in (
        r"plan\.json",
        r"state/.*/stacks/.*local\.json",
        r"state/.*/history/.*",
        r"project/stacks/Pulumi\.local\.yaml",
        r"logs/kube-apiserver\.log",
        rf"logs/pods/{NAMESPACE}_{JOB}.*\.log",
        rf"buckets/.*/{JOB}/runs/.*\.jsonl",
        rf"buckets/.*/{JOB}/.*/manifest\.json",
    ):
        assert any(re.fullmatch(kind, path) for path in searched), f"no {kind} among {len(searched)} files"


def test_no_process_but_those_of_the_job_has_it_in_its_environment_and_none_in_its_arguments(life: Life):
    for process in psutil.process_iter(["environ", "cmdline", "name"]):
        variables: dict[str, str] = process.info["environ"] or {}
        if _occurs(life, "\n".join(variables.values()).encode()):
            assert f"{NAMESPACE}_{JOB}" in variables[FOLDER_VARIABLE], process.info["name"]
        _assert_nowhere(life, "\n".join(process.info["cmdline"] or []))


def _engine(chain: Chain, value: str) -> Opened:
    short = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    file = chain.stack_file(name=JOB, slices={"group": "trillium", "count": 1}, training=short)
    return Opened(chain.site, chain.programs, file, secrets={VARIABLE: value})


def _refused(engine: Engine, told: Told) -> str:
    with pytest.raises(CommandError) as raised:
        engine.up(told)
    return str(raised.value)


def _hosts(chain: Chain) -> list[int]:
    files = chain.site.pods.glob(f"{NAMESPACE}_{JOB}-slice-0-0-*/pid")
    try:
        return [int(line) for file in files for line in file.read_text().split()]
    except FileNotFoundError:
        return []  # a pod that has just gone


def _environment(chain: Chain) -> str | None:
    return psutil.Process(chain.host_pid(f"{JOB}-slice-0-0")).environ().get(VARIABLE)


def _occurs(life: Life, content: bytes) -> bool:
    return any(form in content for canary in life.canaries for form in _forms(canary.encode()))


def _forms(canary: bytes) -> Iterator[bytes]:
    """As it is, and what of it is the same in every base64 text, wherever in the text it begins."""
    yield canary
    for before in range(3):
        whole = base64.b64encode(b"x" * before + canary)
        yield whole[4 if before else 0 : len(whole) // 4 * 4 - 4]


def _assert_nowhere(life: Life, text: str) -> None:
    assert not _occurs(life, text.encode())


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """All files below `root`, unpacked where they are gzipped."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # the job still trains
            packed = content.startswith(b"\x1f\x8b")
            yield str(path.relative_to(root)), gzip.decompress(content) if packed else content


def _told(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") else str(value)

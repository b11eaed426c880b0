import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from infra.kubernetes import STRATEGIC_MERGE_PATCH, ApiServer
from sandbox.node_agent.container import Machine, PodNames, log_file
from sandbox.node_agent.pod import NODE_SHUTDOWN, Pod
from sandbox.node_agent.pod_worker import PodWorker
from sandbox.servers import holds_within
from sandbox.site import Site
from tests.sandbox.node_agent.pods import Json, container, pod, surroundings

ROOT = Path(__file__).parents[3]


@dataclass
class RecordedApi:
    """Takes every status and deletion, as an API server would that has nothing else to do."""

    manifest: Json
    statuses: list[Json] = field(default_factory=list[Json])
    deletions: list[Json] = field(default_factory=list[Json])

    def patch(self, path: str, body: Json, content_type: str) -> Json:
        assert content_type == STRATEGIC_MERGE_PATCH
        assert path.endswith(f"/{self.manifest['metadata']['name']}/status")
        assert body["metadata"] == {"uid": self.manifest["metadata"]["uid"]}
        self.statuses.append(body["status"])
        return {**self.manifest, "status": body["status"]}

    def delete(self, path: str, options: Json) -> None:
        self.deletions.append(options)

    @property
    def phases(self) -> list[str]:
        return [status["phase"] for status in self.statuses]

    def state(self) -> Json:
        return self.statuses[-1]["containerStatuses"][0]


@dataclass
class Trial:
    worker: PodWorker
    api: RecordedApi
    site: Site
    silent: set[str]

    def until(self, holds: Callable[[], object]) -> None:
        assert holds_within(20, lambda: bool(holds()), 0.02), f"still {self.api.statuses[-1:]}"

    def until_running(self) -> None:
        self.until(lambda: "Running" in self.api.phases)

    def until_ended(self) -> None:
        self.until(lambda: self.api.phases and self.api.phases[-1] in ("Succeeded", "Failed"))

    def log(self, name: str = "main") -> str:
        return log_file(self.site, self.worker.pod.folder_name, name).read_text()


type Begin = Callable[[Pod], Trial]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    def begin(me: Pod) -> Trial:
        site = Site(tmp_path, 201)
        api = RecordedApi(me.manifest)
        names = PodNames(site)
        names.update(me)
        machine = Machine(site, Path("/usr/bin/python3"), ROOT, cast("ApiServer", api), names, threading.Event())
        trial = Trial(PodWorker(machine, surroundings(me)), api, site, machine.silent)
        trial.worker.start()
        return trial

    return begin


def script(text: str, name: str = "main", **fields: Any) -> Json:
    return container(name, command=["sh", "-c", text], **fields)


SIDECAR = script("sleep 1", "sidecar", restartPolicy="Always")


def test_a_pod_runs_ends_and_is_reported_twice(begin: Begin) -> None:
    trial = begin(pod(containers=[script("echo said")]))
    trial.until_ended()
    assert trial.api.phases == ["Running", "Succeeded"]
    assert trial.api.state()["state"]["terminated"]["reason"] == "Completed"
    assert trial.log() == "said\n"


def test_a_container_works_in_an_empty_folder_and_imports_what_the_image_has(begin: Begin) -> None:
    trial = begin(pod(containers=[script("ls; echo $PYTHONPATH; touch written")]))
    trial.until_ended()
    assert trial.log() == f"{ROOT}\n"
    assert not (ROOT / "written").exists()


def test_cpu_devices_replace_chips_whatever_platform_the_pod_names(begin: Begin) -> None:
    platform = [{"name": "JAX_PLATFORMS", "value": "tpu,cpu"}]
    chips = {"limits": {"google.com/tpu": "4"}}
    for resources, expected in ((chips, "cpu"), ({}, "tpu,cpu")):
        trial = begin(pod(containers=[script("echo $JAX_PLATFORMS", env=platform, resources=resources)]))
        trial.until_ended()
        assert trial.log().splitlines()[-1] == expected


def test_a_program_leaves_the_cores_to_what_runs_it(begin: Begin) -> None:
    trial = begin(pod(containers=[script("nice; cat /proc/self/autogroup 2> /dev/null || echo nice 10")]))
    trial.until_ended()
    assert re.fullmatch(rf"{min(19, os.nice(0) + 10)}\n.*nice 10\n", trial.log())


def test_the_pids_of_a_running_pod_are_in_a_file(begin: Begin) -> None:
    trial = begin(pod(containers=[container(command=["sleep", "100"])]))
    trial.until_running()
    pids = trial.site.pods / trial.worker.pod.folder_name / "pid"
    assert Path(f"/proc/{pids.read_text().strip()}/comm").read_text() == "sleep\n"
    trial.worker.forget()
    trial.until(lambda: not pids.parent.exists())


def test_init_containers_run_first_and_in_order(begin: Begin) -> None:
    inits = [script("echo 1 > $HOME/steps", "one"), script("echo 2 >> $HOME/steps", "two")]
    trial = begin(pod(initContainers=inits, containers=[script("cat $HOME/steps")]))
    trial.until_ended()
    assert trial.log() == "1\n2\n"


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(begin: Begin) -> None:
    trial = begin(pod(initContainers=[script("exit 3", "fetch")], containers=[script("echo no")]))
    trial.until_ended()
    assert trial.api.phases[-1] == "Failed"
    assert "waiting" in trial.api.state()["state"]


@pytest.mark.parametrize("fields", [{"restartPolicy": "OnFailure"}, {"initContainers": [SIDECAR]}])
def test_a_pod_whose_containers_restart_is_refused(begin: Begin, fields: Json) -> None:
    trial = begin(pod(**fields))
    trial.until(lambda: trial.api.statuses)
    status = trial.api.statuses[-1]
    (waiting, *_) = (each["state"]["waiting"] for each in (*status.get("initContainerStatuses", []), trial.api.state()))
    assert "is not offered here; set Never" in waiting["message"]
    trial.worker.forget()


def test_a_deleted_pod_gets_sigterm_once_then_is_reported_and_released(begin: Begin) -> None:
    text = "trap 'echo term' TERM; echo up; while true; do sleep 0.05; done"
    trial = begin(pod(containers=[script(text)]))
    trial.until(lambda: trial.api.statuses and "up" in trial.log())
    trial.worker.delete(3)
    trial.worker.delete(3)
    trial.until(lambda: trial.api.deletions)
    assert trial.log().count("term\n") == 1
    assert trial.api.phases[-1] == "Failed"
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 137
    assert trial.api.deletions == [{"gracePeriodSeconds": 0, "preconditions": {"uid": trial.worker.pod.uid}}]


def test_a_finished_pod_is_released_when_it_is_deleted_and_not_before(begin: Begin) -> None:
    trial = begin(pod())
    trial.until_ended()
    assert trial.api.deletions == []
    trial.worker.delete(30)
    trial.until(lambda: trial.api.deletions)
    assert trial.api.phases[-1] == "Succeeded"


def test_a_pod_whose_object_is_gone_is_killed_in_silence(begin: Begin) -> None:
    trial = begin(pod(containers=[script("trap '' TERM; sleep 100")]))
    trial.until_running()
    trial.worker.forget()
    trial.worker.join(5)
    assert (trial.api.phases, trial.api.deletions) == (["Running"], [])


def test_an_evicted_pod_fails_as_a_disruption_and_keeps_its_object(begin: Begin) -> None:
    trial = begin(pod(containers=[script("exec sleep 100")]))
    trial.until_running()
    trial.worker.evict(NODE_SHUTDOWN, 5)
    trial.until_ended()
    trial.worker.close()
    trial.worker.join(5)
    assert trial.api.statuses[-1]["reason"] == "Terminated"
    terminated = trial.api.state()["state"]["terminated"]
    assert (terminated["exitCode"], terminated["signal"], terminated["reason"]) == (143, 15, "Error")
    assert "DisruptionTarget" in [condition["type"] for condition in trial.api.statuses[-1]["conditions"]]
    assert trial.api.deletions == []


def test_a_pod_that_ran_before_the_restart_is_reported_failed_and_not_started(begin: Begin) -> None:
    before = {"name": "main", "state": {"running": {}}}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [before]}
    trial = begin(pod(containers=[script("echo again")], status=status))
    trial.until_ended()
    report = trial.api.statuses[-1]
    assert (report["phase"], report["reason"], report["startTime"]) == ("Failed", "NodeRestarted", status["startTime"])
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 137
    assert not (trial.site.logs / "pods").exists()


def test_a_pod_that_waited_for_its_config_before_the_restart_is_simply_started(begin: Begin) -> None:
    before = {"name": "main", "state": {"waiting": {}}}
    trial = begin(pod(status={"phase": "Pending", "containerStatuses": [before]}))
    trial.until_ended()
    assert trial.api.phases[-1] == "Succeeded"


def test_a_container_that_cannot_be_made_says_so_until_the_pod_is_deleted(begin: Begin) -> None:
    trial = begin(pod(containers=[{"name": "main"}]))
    trial.until(lambda: trial.api.statuses)
    assert trial.api.state()["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    trial.worker.delete(30)
    trial.until(lambda: trial.api.deletions)
    assert trial.api.phases == ["Pending", "Failed"]


def test_a_program_that_is_missing_ends_the_pod_as_kubelet_words_it(begin: Begin) -> None:
    trial = begin(pod(containers=[container(command=["no-such-program"])]))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["reason"] == "StartError"


def test_of_a_pod_on_a_silent_node_nothing_is_heard_until_the_node_speaks_again(begin: Begin) -> None:
    trial = begin(pod(containers=[script("until test -e $HOME/go; do sleep 0.05; done")]))
    trial.until_running()
    trial.silent.add(trial.worker.pod.node)
    folder = trial.site.pods / trial.worker.pod.folder_name
    (folder / "home" / "go").touch()
    trial.until(lambda: not (folder / "pid").exists())
    trial.worker.delete(30)
    trial.worker.join(0.3)
    assert (trial.api.phases, trial.api.deletions) == (["Running"], [])
    trial.silent.clear()
    trial.until(lambda: trial.api.deletions)
    assert trial.api.phases[-1] == "Succeeded"


def _probe(action: Json) -> Json:
    return {**action, "periodSeconds": 0.05, "failureThreshold": 2, "timeoutSeconds": 5}


@pytest.mark.parametrize("kind", ["startupProbe", "livenessProbe"])
@pytest.mark.parametrize(
    "action",
    [{"exec": {"command": ["test", "-e", "/nowhere"]}}, {"tcpSocket": {"port": "http"}}, {"httpGet": {"port": "http"}}],
    ids=["command", "connection", "request"],
)
def test_a_container_without_a_sign_of_life_is_ended(begin: Begin, kind: str, action: Json) -> None:
    ports = [{"name": "http", "containerPort": 1}]
    sleeping = {**script("exec sleep 600", ports=ports), kind: _probe(action)}
    trial = begin(pod(containers=[sleeping]))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


def test_one_that_does_not_heed_sigterm_is_killed_after_its_grace(begin: Begin) -> None:
    probe = _probe({"exec": {"command": ["false"]}})
    deaf = script("trap '' TERM; while :; do sleep 0.1; done", livenessProbe=probe)
    trial = begin(pod(containers=[deaf], terminationGracePeriodSeconds=0.2))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_a_container_is_alive_as_long_as_its_probes_pass(begin: Begin, tmp_path: Path) -> None:
    sign, count = tmp_path / "alive", tmp_path / "asked"
    alive = ["sh", "-c", f"echo >> {count}; test -e {sign}"]
    probe = _probe({"exec": {"command": alive}})
    patient = {**probe, "failureThreshold": 1000}
    trial = begin(pod(containers=[script("exec sleep 600", startupProbe=patient, livenessProbe=probe)]))
    trial.until(lambda: count.exists() and len(count.read_text()) > 3)
    sign.touch()
    asked = len(count.read_text())
    trial.until(lambda: len(count.read_text()) > asked + 3)
    assert trial.api.phases[-1] == "Running"
    sign.unlink()
    trial.until_ended()
    assert trial.api.phases[-1] == "Failed"

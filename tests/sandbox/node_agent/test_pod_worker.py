import os
import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.node_agent.pod import NODE_SHUTDOWN
from sandbox.node_agent.pod_worker import unsupported
from sandbox.site import PULLS_NO_IMAGES, REFUSES_PODS
from tests.checkout import ROOT
from tests.sandbox.node_agent.pods import Json, container, pod
from tests.sandbox.node_agent.trials import Begin, script


def test_a_pod_runs_in_an_empty_folder_yields_the_cores_and_is_released_only_when_it_is_deleted(begin: Begin) -> None:
    text = "ls; echo $PYTHONPATH; touch written; nice; cat /proc/self/autogroup 2> /dev/null || echo nice 10"
    trial = begin(pod(containers=[script(text)]))
    trial.until_ended()
    assert re.fullmatch(rf"{ROOT}\n{min(19, os.nice(0) + 10)}\n.*nice 10\n", trial.log())
    assert not (ROOT / "written").exists()
    assert (trial.api.phases, trial.api.deletions) == (["Running", "Succeeded"], [])
    assert trial.api.state()["state"]["terminated"]["reason"] == "Completed"
    trial.delete(30)
    assert trial.api.phases[-1] == "Succeeded"


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(begin: Begin) -> None:
    trial = begin(pod(initContainers=[script("exit 3", "fetch")], containers=[script("echo no")]))
    trial.until_ended()
    assert trial.api.phases[-1] == "Failed"
    assert "waiting" in trial.api.state()["state"]


def test_an_unsupported_pod_is_refused_with_an_event_and_nothing_of_it_runs(begin: Begin, tmp_path: Path) -> None:
    inits = [script(f"touch {tmp_path}/ran", "first")]
    volumes = [{"name": "data", "hostPath": {"path": "/"}}]
    trial = begin(pod(initContainers=inits, containers=[script("true")], volumes=volumes))
    trial.until(lambda: trial.api.events)
    refusal = "The sandbox does not run this pod because it does not support volume 'data' of kind hostPath."
    assert trial.api.events == [("Unsupported", refusal)]
    assert trial.api.state()["state"]["waiting"] == {"reason": "Unsupported", "message": refusal}
    trial.delete(30)
    assert trial.api.phases == ["Pending", "Failed"]
    assert not (tmp_path / "ran").exists()


def test_a_machine_without_healthy_chips_refuses_a_pod_before_any_container_starts(
    begin: Begin, tmp_path: Path
) -> None:
    trial = begin(pod(containers=[script(f"touch {tmp_path}/ran")]), REFUSES_PODS)
    trial.until_ended()
    refused = trial.api.statuses[-1]
    assert (trial.api.phases, refused["reason"]) == (["Failed"], "UnexpectedAdmissionError")
    assert refused["message"].startswith("Pod was rejected: Allocate failed due to no healthy devices present")
    assert "containerStatuses" not in refused
    assert [reason for reason, _ in trial.api.events] == ["UnexpectedAdmissionError"]
    assert not (tmp_path / "ran").exists()


def test_a_pod_waits_for_an_image_that_cannot_be_pulled_and_then_runs(begin: Begin) -> None:
    trial = begin(pod(containers=[script("echo said", image="trainer")]), PULLS_NO_IMAGES)
    trial.until(lambda: trial.api.events)
    waits = trial.api.state()["state"]["waiting"]
    assert waits == {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "trainer"'}
    assert trial.api.phases == ["Pending"]
    trial.broken.clear()
    trial.until_ended()
    assert (trial.api.phases[-1], trial.log()) == ("Succeeded", "said\n")


def test_a_deleted_pod_gets_sigterm_once_then_is_reported_and_released(begin: Begin) -> None:
    text = "trap 'echo term' TERM; echo up; while true; do sleep 0.05; done"
    trial = begin(pod(containers=[script(text)]))
    trial.until(lambda: trial.api.statuses and "up" in trial.log())
    trial.worker.delete(3)
    trial.delete(3)
    assert trial.log().count("term\n") == 1
    assert trial.api.phases[-1] == "Failed"
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 137
    assert trial.api.deletions == [{"gracePeriodSeconds": 0, "preconditions": {"uid": trial.worker.pod.uid}}]


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
    before = {"name": "main", "state": {"running": {}}, "lastState": {}, "restartCount": 2}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [before]}
    trial = begin(pod(containers=[script("echo again")], status=status))
    trial.until_ended()
    report = trial.api.statuses[-1]
    assert (report["phase"], report["reason"], report["startTime"]) == ("Failed", "NodeRestarted", status["startTime"])
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 137
    assert trial.api.state()["restartCount"] == 2
    assert not (trial.site.logs / "pods").exists()


def test_a_container_that_cannot_be_made_yet_says_so_once_until_the_pod_is_deleted(begin: Begin) -> None:
    trial = begin(pod(containers=[script("true", envFrom=[{"configMapRef": {"name": "absent"}}])]))
    trial.until(lambda: trial.api.events)
    assert trial.api.state()["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert trial.api.events == [("Failed", "Container main waits for its configuration: configmap 'absent' not found.")]
    trial.delete(30)
    assert trial.api.phases == ["Pending", "Failed"]


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


def sidecar(name: str, **fields: Any) -> Json:
    """A sidecar that records when it is asked to end."""
    text = f"trap 'echo {name} >> $HOME/ends; exit 3' TERM; touch $HOME/{name}; while :; do sleep 0.02; done"
    return script(text, name, restartPolicy="Always", **fields)


def test_sidecars_run_next_to_the_pod_and_end_after_it_in_reverse_order(begin: Begin) -> None:
    up = {"startupProbe": {"exec": {"command": ["sh", "-c", "test -e $HOME/first"]}, "periodSeconds": 0.02}}
    inits = [sidecar("first", **up), script("cp $HOME/first $HOME/checked", "check"), sidecar("second")]
    main = script("until test -e $HOME/second; do sleep 0.02; done; ls $HOME; echo main >> $HOME/ends")
    trial = begin(pod(initContainers=inits, containers=[main]))
    trial.until_ended()
    assert trial.api.phases[-1] == "Succeeded"
    assert trial.log() == "checked\nfirst\nsecond\n"
    assert (trial.home / "ends").read_text() == "main\nsecond\nfirst\n"


def test_a_pod_ends_at_its_deadline(begin: Begin) -> None:
    trial = begin(pod(containers=[script("exec sleep 100")], activeDeadlineSeconds=1, restartPolicy="Always"))
    trial.until_ended()
    assert (trial.api.phases[-1], trial.api.statuses[-1]["reason"]) == ("Failed", "DeadlineExceeded")


BEGINNING = "The sandbox does not run this pod because it does not support "
VOLUMES: list[dict[str, Any]] = [
    {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "all", "projected": {"sources": [{"configMap": {}}, {"secret": {}}, {"serviceAccountToken": {}}]}},
]
SUPPORTED = container(
    envFrom=[{"configMapRef": {"name": "settings"}}],
    env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
    lifecycle={"postStart": {"exec": {"command": ["true"]}}, "preStop": {"sleep": {"seconds": 1}}},
    readinessProbe={"httpGet": {"port": 80}, "periodSeconds": 1},
    volumeMounts=[{"name": "scratch", "mountPath": "/data", "subPath": "a", "mountPropagation": "None"}],
    securityContext={"runAsUser": 10001},
)


MOUNT = {"name": "d", "mountPath": "/d", "subPathExpr": "$(A)"}


def volume(**kind: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "d", **kind}]}


def test_an_ordinary_pod_is_not_refused() -> None:
    assert unsupported(pod(containers=[SUPPORTED], volumes=VOLUMES, hostNetwork=True, restartPolicy="Always")) is None


@pytest.mark.parametrize(
    ("of_pod", "of_container", "part"),
    [
        ({"hostAliases": [{"ip": "1.2.3.4"}]}, {}, "hostAliases"),
        (volume(hostPath={"path": "/"}), {}, "volume 'd' of kind hostPath"),
        (volume(projected={"sources": [{"clusterTrustBundle": {}}]}), {}, "volume 'd' of kind clusterTrustBundle"),
        ({}, {"command": []}, "the entry point of container 'main', because images are not run here and it has no com"),
        ({}, {"volumeDevices": [{}]}, "volumeDevices of container 'main'"),
        ({}, {"livenessProbe": {"grpc": {"port": 1}}}, "the action of livenessProbe of container 'main'"),
        ({}, {"lifecycle": {"stopSignal": "SIGUSR1"}}, "stopSignal of container 'main'"),
        ({}, {"volumeMounts": [MOUNT]}, "subPathExpr of mount '/d' of container 'main'"),
        ({}, {"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}, "fileKeyRef of variable 'A' of container 'm"),
    ],
)
def test_what_a_pod_has_beyond_that_is_named(of_pod: dict[str, Any], of_container: Json, part: str) -> None:
    me = container() | of_container
    for kind in ("containers", "initContainers"):
        fields: dict[str, Any] = {**of_pod, kind: [me]}
        assert (unsupported(pod(**fields)) or "").startswith(BEGINNING + part)


def test_all_parts_are_named_at_once() -> None:
    several = pod(hostAliases=[{}], containers=[container("one", command=[]), container("two", volumeDevices=[{}])])
    assert (unsupported(several) or "").count(",") == 3

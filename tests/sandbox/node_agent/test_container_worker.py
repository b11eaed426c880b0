import pytest

from infra.cluster.kubernetes import Json
from sandbox.node_agent.container_worker import BackOff
from tests.sandbox.node_agent.pods import container, pod
from tests.sandbox.node_agent.trials import Begin, script

CRASHES_TWICE = "echo run; ls; touch here; echo >> $HOME/runs; test $(wc -l < $HOME/runs) -ge 3"


def test_pauses_double_up_to_five_minutes_and_begin_again_after_ten_minutes_of_running() -> None:
    backoff = BackOff(10)
    assert [backoff.pause_seconds(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [backoff.pause_seconds(seconds) for seconds in (600, 1, 1)] == [0, 10, 20]


def test_a_container_that_crashes_runs_again_in_an_empty_folder_after_pauses_until_it_succeeds(begin: Begin) -> None:
    trial = begin(pod(restartPolicy="OnFailure", containers=[script(CRASHES_TWICE)]))
    trial.until_ended()
    assert trial.api.phases[-1] == "Succeeded"
    assert "Failed" not in trial.api.phases
    status = trial.api.state()
    assert (status["restartCount"], status["state"]["terminated"]["exitCode"]) == (2, 0)
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert trial.log() == trial.log(previous=True) == "run\n"
    # Only the second restart waits.
    statuses = [status["containerStatuses"][0] for status in trial.api.statuses]
    (waiting,) = [each for each in statuses if "waiting" in each["state"]]
    assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (waiting["restartCount"], waiting["lastState"]["terminated"]["exitCode"]) == (1, 1)
    assert [reason for reason, _ in trial.api.events] == ["BackOff"]


@pytest.mark.parametrize(
    ("policy", "command", "ended"),
    [("Always", "true", "Completed"), ("OnFailure", "no-such-program", "StartError")],
)
def test_a_container_starts_again_as_its_pod_says(begin: Begin, policy: str, command: str, ended: str) -> None:
    trial = begin(pod(restartPolicy=policy, containers=[container(command=[command])]))
    trial.until(lambda: trial.api.statuses and trial.api.state()["restartCount"] >= 1)
    assert trial.api.state()["lastState"]["terminated"]["reason"] == ended
    assert {*trial.api.phases} <= {"Pending", "Running"}


def test_an_empty_dir_in_memory_outlives_the_container_and_ends_with_the_pod(begin: Begin) -> None:
    me = script("test -e /srv/kept || { touch /srv/kept; exit 1; }", volumeMounts=[{"name": "m", "mountPath": "/srv"}])
    volume = {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    trial = begin(pod(restartPolicy="OnFailure", containers=[me], volumes=[volume]))
    trial.until_ended()
    assert trial.api.phases[-1] == "Succeeded"
    assert [*trial.site.pods.rglob("kept")]
    trial.worker.delete(0)
    trial.until(lambda: not [*trial.site.pods.rglob("kept")])


def test_containers_of_a_pod_restart_on_their_own_after_its_init_containers_have_succeeded(begin: Begin) -> None:
    steady = script("until test $(cat $HOME/runs | wc -l) -ge 6; do sleep 0.02; done", "steady")
    crashes = script(CRASHES_TWICE.replace("-ge 3", "-ge 6"))
    inits = [script(CRASHES_TWICE, "fetch")]
    trial = begin(pod(restartPolicy="OnFailure", initContainers=inits, containers=[crashes, steady]))
    trial.until_ended()
    status = trial.api.statuses[-1]
    assert status["phase"] == "Succeeded"
    assert [each["restartCount"] for each in status["initContainerStatuses"]] == [2]
    assert [each["restartCount"] for each in status["containerStatuses"]] == [2, 0]


def test_a_pod_that_waits_for_a_restart_can_be_deleted(begin: Begin) -> None:
    trial = begin(pod(restartPolicy="OnFailure", containers=[script("exit 7")]))
    # Before its seventh restart it waits long enough for the deletion to come first.

    def waits() -> bool:
        status: Json = trial.api.state() if trial.api.statuses else {"restartCount": 0}
        return status["restartCount"] >= 6 and "waiting" in status["state"]

    trial.until(waits)
    trial.delete(30)
    assert trial.api.phases[-1] == "Failed"
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 7


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("echo broken > /dev/termination-log; exit 1", {}, "broken\n"),
        ("echo done > /made-for-a-pod/end", {"terminationMessagePath": "/made-for-a-pod/end"}, "done\n"),
        ("echo broken; exit 1", {"terminationMessagePolicy": "FallbackToLogsOnError"}, "broken\n"),
        ("echo done", {"terminationMessagePolicy": "FallbackToLogsOnError"}, None),
        ("echo broken; exit 1", {}, None),
    ],
)
def test_a_program_can_leave_a_message_about_its_end(
    begin: Begin, text: str, fields: Json, message: str | None
) -> None:
    trial = begin(pod(containers=[script(text, **fields)]))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"].get("message") == message


@pytest.mark.parametrize("folder", ["/made-for-a-pod/work", "/data/deep", "/usr"])
def test_a_container_works_in_the_folder_that_it_names(begin: Begin, folder: str) -> None:
    me = script("pwd; test -w .", workingDir=folder, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    trial = begin(pod(containers=[me], volumes=[{"name": "data", "emptyDir": {}}]))
    trial.until_ended()
    assert trial.log() == f"{folder}\n"

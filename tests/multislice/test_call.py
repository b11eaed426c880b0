import json
import pickle
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any, cast

import pytest

from infra.cluster.job_state import State
from infra.cluster.kubernetes import Json
from multislice import BucketFailed, CallError, CallGone, FunctionRaised, HostFailed, HostTraceback, ResultDamaged
from multislice.call import Call, Status, filter_lines
from tests.cli import api_objects
from tests.multislice.known import UID, Objects
from workloads.call.folder import RETURNED, Seals


def jobset(objects: Objects) -> Json:
    return next(found for path, found in objects.found.items() if "jobsets" in path)


def ended(objects: Objects, kind: str, message: str = "") -> None:
    conditions = [{"type": kind, "status": "True", "message": message}]
    jobset(objects)["status"] = {"terminalState": kind, "conditions": conditions}


def completed(call: Call, objects: Objects, value: object) -> None:
    """End the call with this value."""
    seals(call).write(RETURNED, pickle.dumps(value))
    ended(objects, "Completed")


def seals(call: Call) -> Seals:
    return Seals.of(call.spec, call.files, cast(Objects, call.connection.api).keys[call.id])


def raised(call: Call, process: int, error: BaseException | None, **facts: Any) -> None:
    pickled = None if error is None else b64encode(pickle.dumps(error)).decode()
    record = {"host": "slice-1-0", "time": 2.0, "type": "Odd", "message": "so", "traceback": ["line"]}
    seals(call).write_raised(process, json.dumps({**record, "exception": pickled, **facts}).encode())


def workload(objects: Objects, conditions: list[Json], *, active: bool = True) -> None:
    owner = {"metadata": {"name": "w", "ownerReferences": [{"uid": UID, "name": "f"}]}, "spec": {"active": active}}
    objects.found["/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/w"] = {
        **owner,
        "status": {"conditions": conditions},
    }


def test_a_call_says_where_it_is(call: Call, objects: Objects) -> None:
    found = jobset(objects)
    assert call.status() == Status(State.STARTING)
    found["spec"]["suspend"] = True
    workload(objects, [{"type": "QuotaReserved", "status": "False", "message": "no quota"}])
    assert str(call.status()) == "queued: no quota"
    found["spec"]["suspend"] = False
    found["status"] = {"replicatedJobsStatus": [{"name": "slice", "ready": 2}]}
    assert call.status() == Status(State.RUNNING)
    ended(objects, "Completed")
    assert call.status().state is State.COMPLETED
    call.cancel()
    assert call.status() == Status(State.MISSING)
    with pytest.raises(CallGone, match=f"call {call.id} was cancelled"):
        call.result()


def test_a_call_whose_container_does_not_start_reports_the_host_and_the_reason(call: Call, objects: Objects) -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found: trainer@sha256:0"}
    pod = api_objects.pod(0, 1, "Pending")
    pod["spec"]["nodeName"] = "n"
    pod["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
    objects.found[f"{api_objects.PODS}/x"] = pod
    assert str(call.status()) == "starting: slice-0-1: ErrImagePull: not found: trainer@sha256:0"


def test_a_call_that_kueue_stopped_for_good_has_failed(call: Call, objects: Objects) -> None:
    jobset(objects)["spec"]["suspend"] = True
    workload(objects, [{"type": "Evicted", "status": "True", "message": "exceeded"}], active=False)
    with pytest.raises(HostFailed, match="Kueue deactivated it: exceeded"):
        call.result()


def test_a_result_is_given_once_and_what_the_function_wrote_stays(call: Call, objects: Objects) -> None:
    completed(call, objects, {"loss": 1.5})
    call.files.write("output/model", b"weights")
    # It may be looked at until it is taken.
    assert [call.outcome().value for _ in range(2)] == [{"loss": 1.5}] * 2
    assert call.result() == {"loss": 1.5}
    assert call.files.names("") == ["output/model"]
    with pytest.raises(CallGone, match="was fetched before"):
        call.result()


def test_a_value_is_not_lost_because_its_files_cannot_be_removed(call: Call, objects: Objects) -> None:
    completed(call, objects, 3)
    call.connection.filesystem.fails["rm_file"] = OSError("Forbidden: no delete")
    assert call.result() == 3


def test_a_result_that_cannot_be_read_is_reported_with_the_way_back_to_it(call: Call, objects: Objects) -> None:
    ended(objects, "Completed")
    call.connection.filesystem.fails["info"] = OSError("Forbidden: no read")
    with pytest.raises(BucketFailed, match="cannot be read or written from here: Forbidden: no read") as fault:
        call.result()
    (note,) = fault.value.__notes__
    assert f"multislice.attach({call.id!r}, stack='local').result() later" in note


def test_a_bucket_that_fails_while_other_hosts_work_is_asked_again(call: Call) -> None:
    call.connection.filesystem.fails["info"] = OSError("away")
    has_ended = threading.Event()
    has_ended.set()
    with pytest.raises(TimeoutError):
        call.outcome(timeout=0, ended=has_ended)


def test_an_unreachable_cluster_is_reported_once_and_the_wait_goes_on(call: Call, objects: Objects) -> None:
    answer: list[Status] = []

    def hear(status: Status) -> None:
        answer.append(status)
        objects.fails["GET"] = OSError(f"away, for the {len(answer)}. time")
        if status.state is State.UNKNOWN:
            threading.Timer(0.7, come_back).start()

    def come_back() -> None:
        # It was cancelled meanwhile, so that nothing else is seen first.
        objects.found.clear()
        objects.fails.clear()

    assert isinstance(call.outcome(on_status=hear).error, CallGone)
    assert [status.state for status in answer] == [State.STARTING, State.UNKNOWN, State.MISSING]
    assert "cannot be reached: away" in answer[1].reason


@pytest.mark.parametrize(
    "error", [pytest.param(SystemExit(3), id="would end the process here"), pytest.param(None, id="could not travel")]
)
def test_an_exception_that_cannot_be_raised_here_is_named(call: Call, objects: Objects, error: Any) -> None:
    raised(call, 0, error)
    ended(objects, "Failed")
    with pytest.raises(FunctionRaised, match="Odd: so"):
        call.result()


def test_a_result_that_somebody_else_wrote_is_not_opened(call: Call, objects: Objects, tmp_path: Path) -> None:
    opened = tmp_path / "opened"

    class Attack:
        def __reduce__(self) -> Any:
            return Path.touch, (opened,)

    call.files.write(RETURNED, b"0" * 32 + pickle.dumps(Attack()))
    ended(objects, "Completed")
    with pytest.raises(ResultDamaged):
        call.result()
    assert not opened.exists()


def test_waiting_ends_in_time_and_leaves_the_call_alone(call: Call) -> None:
    with pytest.raises(TimeoutError, match=r"has not ended within 0 s \(starting\); it continues"):
        call.result(timeout=0)
    assert call.status().state is State.STARTING


def test_the_first_exception_is_raised_as_what_it_is_with_its_host(call: Call, objects: Objects) -> None:
    raised(call, 0, ValueError("later"), time=3.0)
    raised(call, 1, KeyError("first"))
    ended(objects, "Failed")
    with pytest.raises(KeyError, match="first") as found:
        call.result()
    assert isinstance(found.value.__cause__, HostTraceback)
    assert str(found.value.__cause__) == "on slice-1-0:\n\nline"
    assert found.value.__notes__ == ["raised on slice-1-0"]


def test_a_host_that_failed_is_reported_by_its_own_record(call: Call, objects: Objects) -> None:
    record = {"host": "host-1", "code": 24, "cause": "it hangs", "details": ["stack"], "time": 2.0, "elsewhere": False}
    call.files.write("failures/run/a.json", json.dumps(record).encode())
    ended(objects, "Failed", "jobset failed")
    with pytest.raises(HostFailed, match=rf"call {call.id}: host host-1 ended \(HANG\): it hangs\nstack"):
        call.result()


def test_without_any_record_the_clusters_word_is_reported(call: Call, objects: Objects) -> None:
    ended(objects, "Failed", "jobset failed due to one or more job failures")
    with pytest.raises(HostFailed, match="due to one or more job failures"):
        call.result()


def test_a_value_that_cannot_be_made_here_is_reported(call: Call, objects: Objects) -> None:
    seals(call).write(RETURNED, b"cno.such.module\nThing\n.")
    ended(objects, "Completed")
    with pytest.raises(CallError, match="its value cannot be unpickled here: ModuleNotFound"):
        call.result()


BEGINS, ENDS = "call x: the function begins", "call x: the function has ended"
TORN = "0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        pytest.param(["early", BEGINS, "step 1", ENDS, "stopped"], ["step 1"], id="lines are between its markers"),
        pytest.param(["early"], [], id="it has not begun"),
        pytest.param([BEGINS, "[Gloo] Rank 0", TORN, "step 2"], ["step 2"], id="what Gloo prints is left out"),
        pytest.param([BEGINS, f"100% done{ENDS}", "stopped"], ["100% done"], id="its last line was not ended"),
        pytest.param(
            ["call y: the function begins", BEGINS, "call y: the function has ended", "more", ENDS],
            ["call y: the function has ended", "more"],
            id="what it prints of another call opens and ends nothing",
        ),
        pytest.param([BEGINS, "a", ENDS, "b", BEGINS, "c"], ["a", "c"], id="it begins again"),
    ],
)
def test_the_lines_that_a_function_printed_are_found_in_a_log(lines: list[str], printed: list[str]) -> None:
    assert list(filter_lines("x", lines)) == printed

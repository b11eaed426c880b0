"""A deployed stack on a played API server."""

from pathlib import Path
from typing import Any

from cli.deployed import Deployed, JobRef
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, JOBSETS, NODES, PODS, QUEUES, WORKLOADS, condition, stamped
from tests.cli.api_server import Played, client
from tests.workloads.report.runs import crashed_and_resumed


def node(slice_index: int, host_index: int, **spec: Any) -> dict[str, Any]:
    name = f"gke-slice-{slice_index}-{host_index}"
    labels = {"cloud.google.com/gke-nodepool": f"slice-{slice_index}", "cloud.google.com/gke-tpu-topology": "2x4"}
    status = {"conditions": [condition("Ready", "True", 0)], "allocatable": {"google.com/tpu": "4"}}
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec, "status": status}


def queue() -> dict[str, Any]:
    resource = {"name": "google.com/tpu", "nominalQuota": "16"}
    reserved = {"name": "google.com/tpu", "total": "16", "borrowed": "0"}
    groups = [{"coveredResources": ["google.com/tpu"], "flavors": [{"name": "v6e", "resources": [resource]}]}]
    status = {
        "conditions": [condition("Active", "True", 0, "Can admit new workloads", "Ready")],
        "pendingWorkloads": 1,
        "reservingWorkloads": 1,
        "flavorsReservation": [{"name": "v6e", "resources": [reserved]}],
    }
    return {"metadata": {"name": "research", "uid": "q"}, "spec": {"resourceGroups": groups}, "status": status}


def waiting(name: str, **changes: Any) -> dict[str, Any]:
    """The Workload of a job for which there is no quota."""
    found = api_objects.workload(f"jobset-{name}", owner=name, **changes)
    found["status"] = {"conditions": [condition("QuotaReserved", "False", 50, api_objects.NO_QUOTA, "Pending")]}
    return found


def running() -> Played:
    """The job `tiny` runs on four hosts, each of which has printed two lines."""
    played = Played()
    played.collections[NODES] = [node(*host) for host in HOSTS]
    played.collections[QUEUES] = [queue()]
    played.collections[JOBSETS] = [api_objects.jobset()]
    played.collections[WORKLOADS] = [api_objects.workload(conditions=api_objects.ADMITTED)]
    played.collections[PODS] = [api_objects.pod(*host) for host in HOSTS]
    for place, (slice_index, host_index) in enumerate(HOSTS):
        name = f"tiny-slice-{slice_index}-{host_index}"
        played.write(f"{name}-0abcd", *stamped([f"{name} one", f"{name} two"], at=60 + place * 0.01))
    return played


def running_by_pathways() -> Played:
    """Return the same with Pathways: a head runs in addition to the four hosts and has printed two lines."""
    played = running()
    played.collections[JOBSETS] = [api_objects.headed()]
    played.collections[PODS] = [*played.collections[PODS], api_objects.head()]
    played.write("tiny-head-0-0-0abcd", *stamped(["tiny-head-0-0 one", "tiny-head-0-0 two"]))
    return played


def finish(played: Played, terminal: str = "Completed", attempt: int = 0) -> None:
    """All hosts have ended, and so has the job."""
    phase, code = ("Succeeded", 0) if terminal == "Completed" else ("Failed", 22)
    for key in HOSTS:
        played.change(PODS, api_objects.pod(*key, phase, attempt=attempt, exit_code=code))
    played.change(JOBSETS, api_objects.jobset(attempt, terminal, "it has ended", ended=95))


def trained(storage: Path) -> Path:
    """Write the records of the job `tiny`, whose second attempt continued after step 2 and did steps 3 to 5."""
    return crashed_and_resumed(storage / "tiny", 3600.0, 7200.0, run_id="uid-tiny", at=api_objects.START + 60)


def stack(played: Played, storage: Path) -> Deployed:
    outputs = {"cluster": "dev", "queues": {"research": "research"}, "bill": {"at_once": {"usd_per_hour": 21.6}}}
    return Deployed("dev", outputs, client(played), str(storage), (JobRef("tiny", "research", "research"),))

"""What others submit next to the program's own jobs: a JobSet by hand, and workloads that Kueue decides about."""

from typing import Any

import pytest
import yaml

from tests.chain.rehearsals import disagreements, windows_agree
from tests.chain.stack import NAMESPACE, Chain

pytestmark = pytest.mark.complete

HAND_WRITTEN = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: by-hand
  namespace: research
  labels: {kueue.x-k8s.io/queue-name: research}
spec:
  replicatedJobs:
  - name: slice
    replicas: 2
    template:
      spec:
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice, cloud.google.com/gke-tpu-topology: 2x4}
            tolerations: [{key: google.com/tpu, operator: Exists}]
            securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
            containers:
            - name: main
              image: python:3.13
              command:
              - python
              - -c
              - |
                import jax
                jax.distributed.initialize()
                print("process", jax.process_index(), "of", jax.process_count(), "sees", jax.device_count(), "devices")
              resources: {limits: {google.com/tpu: 4}}
              securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


CRASHES_ONCE = """
import pathlib, sys
tried = pathlib.Path("/made-for-a-pod/tried")
if not tried.exists():
    tried.touch()
    sys.exit("this start fails")
print("this start succeeds")
"""


def defaulted(name: str, **changes: Any) -> str:
    """That JobSet under another name, with JobSet's default restart policy; `changes` are of its container."""
    jobset = yaml.safe_load(HAND_WRITTEN)
    jobset["metadata"]["name"] = name
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    # Restarts count against it.
    del job["backoffLimit"]
    pod = job["template"]["spec"]
    del pod["restartPolicy"]
    pod["containers"][0] |= changes
    pod["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return yaml.safe_dump(jobset)


def test_a_jobset_by_hand_runs_in_the_queue_and_finds_its_peers(stack: Chain):
    stack.kubectl("apply", "-f", "-", stdin=HAND_WRITTEN)
    assert stack.wait_for_end("by-hand")["terminalState"] == "Completed"
    logs = stack.kubectl("logs", "-n", NAMESPACE, "-l", "jobset.sigs.k8s.io/jobset-name=by-hand")
    said = sorted(line for line in logs.splitlines() if line.startswith("process"))
    assert said == [f"process {index} of 4 sees 16 devices" for index in range(4)]
    stack.kubectl("delete", "jobset", "by-hand", "-n", NAMESPACE)


def test_pods_that_crash_start_again_in_place(stack: Chain):
    scratch = [{"name": "scratch", "mountPath": "/made-for-a-pod"}]
    crashing = defaulted("crashing", command=["python", "-c", CRASHES_ONCE], volumeMounts=scratch)
    stack.kubectl("apply", "-f", "-", stdin=crashing)
    status = stack.wait_for_end("crashing")
    assert (status["terminalState"], status.get("restarts", 0)) == ("Completed", 0)
    pods = stack.pods("crashing")
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1, 1, 1]
    logs = ("logs", "-n", NAMESPACE, pods[0]["metadata"]["name"])
    assert stack.kubectl(*logs) == "this start succeeds\n"
    assert stack.kubectl(*logs, "--previous") == "this start fails\n"
    stack.kubectl("delete", "jobset", "crashing", "-n", NAMESPACE)


def test_admissions_are_rehearsed_as_kueue_decides_them(stack: Chain):
    assert disagreements(stack, fair_sharing=False) == []
    assert windows_agree(stack) >= 0.99

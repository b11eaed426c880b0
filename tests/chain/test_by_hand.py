"""What others submit next to the program's own jobs: a JobSet by hand, and workloads that Kueue decides about."""

import pytest

from tests.chain.rehearsals import disagreements
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


def test_a_jobset_by_hand_runs_in_the_queue_and_finds_its_peers(stack: Chain):
    stack.kubectl("apply", "-f", "-", stdin=HAND_WRITTEN)
    assert stack.wait_for_end("by-hand")["terminalState"] == "Completed"
    logs = stack.kubectl("logs", "-n", NAMESPACE, "-l", "jobset.sigs.k8s.io/jobset-name=by-hand")
    said = sorted(line for line in logs.splitlines() if line.startswith("process"))
    assert said == [f"process {index} of 4 sees 16 devices" for index in range(4)]
    stack.kubectl("delete", "jobset", "by-hand", "-n", NAMESPACE)


def test_admissions_are_rehearsed_as_kueue_decides_them(stack: Chain):
    assert disagreements(stack, fair_sharing=False) == []

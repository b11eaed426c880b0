"""The whole chain in the order of a stack's life: up, train, crash, resume, by hand, destroy, up again.

The tests share one sandbox and build on each other's state, as the steps of one story.
"""

import io
import os
import signal
from ipaddress import IPv4Address, IPv6Address, ip_address

import psutil
from rich.console import Console

from chaos.field import NAMESPACE, SAVE_EVERY, STEPS
from cli.down import Consent, down
from cli.up import up
from sandbox import daemon
from sandbox.site import taken_ports
from tests.chain.rehearsals import disagreements
from tests.chain.stack import Chain, ignore, processes_of, wait_until

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


def test_up_trains_to_the_last_step_and_leaves_a_checkpoint_in_the_bucket(chain: Chain):
    outputs = chain.engine(name="steady").up(ignore)
    assert outputs["checkpoint_bucket"] == "gs://sandbox-local-checkpoints"
    assert chain.wait_for_end("steady")["terminalState"] == "Completed"
    losses = chain.losses("steady")
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < losses[1] - 1
    assert {path.name for path in chain.run_folder("steady").glob("checkpoints/*")} >= {str(STEPS)}


def test_every_slice_ran_in_a_node_pool_of_its_own(chain: Chain):
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for node in chain.objects("nodes")
    }
    pods = chain.objects("pods", "-l=jobset.sigs.k8s.io/jobset-name=steady")
    placed = {
        (pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], pools[pod["spec"]["nodeName"]]) for pod in pods
    }
    assert len(pods) == 4
    assert len(placed) == len({pool for _, pool in placed}) == 2


def test_kubectl_reads_the_log_of_a_host(chain: Chain):
    log = chain.kubectl(
        "logs", "-n", NAMESPACE, "-l", "jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0"
    )
    assert f"step {STEPS}/{STEPS} loss" in log


def test_a_clean_stack_shows_no_change_even_after_a_refresh_has_read_what_controllers_wrote(chain: Chain):
    engine = chain.engine(name="steady")
    engine.refresh(ignore)
    assert set(engine.preview(ignore).change_summary) == {"same"}


def test_no_credential_is_in_clear_in_the_state(chain: Chain):
    key = (chain.site.pki / "admin.key").read_text().splitlines()[1]
    for state in (chain.site.root / "state").rglob("*.json"):
        assert key not in state.read_text()


def test_nothing_of_the_sandbox_listens_beyond_loopback(chain: Chain):
    listening = addresses_listened_on(processes_of(chain.site))
    assert len(listening) > 5
    assert [address for address in listening if not address.is_loopback] == []


def test_a_killed_host_restarts_both_slices_and_the_losses_stay_the_same_bit_by_bit(chain: Chain):
    chain.engine(name="crash").up(ignore)
    # Their log has it at once, the file of the steps up to two seconds later.
    wait_until(
        lambda: f"\nstep {SAVE_EVERY + 2}/" in log_of_leader(chain, "crash"), lambda: log_of_leader(chain, "crash")
    )
    hosts = [psutil.Process(chain.host_pid(f"crash-slice-{number}-{host}")) for number in (0, 1) for host in (0, 1)]
    assert [address for address in addresses_listened_on(hosts) if not address.is_loopback] == []
    os.kill(chain.host_pid("crash-slice-1-1"), signal.SIGKILL)
    status = chain.wait_for_end("crash")
    assert (status["terminalState"], status["restarts"]) == ("Completed", 1)
    assert "1" in chain.kubectl("get", "jobset", "crash", "-n", NAMESPACE).splitlines()[1].split()
    assert len(list(chain.run_folder("crash").glob("ledger/*-0.jsonl"))) == 2
    assert chain.losses("crash") == chain.losses("steady")


def test_a_jobset_by_hand_runs_in_the_queue_and_finds_its_peers(chain: Chain):
    chain.kubectl("apply", "-f", "-", stdin=HAND_WRITTEN)
    assert chain.wait_for_end("by-hand")["terminalState"] == "Completed"
    logs = chain.kubectl("logs", "-n", NAMESPACE, "-l", "jobset.sigs.k8s.io/jobset-name=by-hand")
    said = sorted(line for line in logs.splitlines() if line.startswith("process"))
    assert said == [f"process {index} of 4 sees 16 devices" for index in range(4)]


def test_a_job_above_the_quota_waits_in_the_queue(chain: Chain):
    too_large = HAND_WRITTEN.replace("replicas: 2", "replicas: 3").replace("by-hand", "too-large")
    chain.kubectl("apply", "-f", "-", stdin=too_large)

    def refused() -> bool:
        workloads = [item for item in chain.objects("workloads") if "too-large" in item["metadata"]["name"]]
        conditions = [condition for item in workloads for condition in item.get("status", {}).get("conditions", [])]
        return any(item["type"] == "QuotaReserved" and item["status"] == "False" for item in conditions)

    wait_until(refused, lambda: chain.kubectl("get", "workloads", "-A", "-o", "yaml"))
    assert chain.jobset("too-large")["spec"]["suspend"] is True
    chain.kubectl("delete", "jobset", "too-large", "-n", NAMESPACE)
    chain.kubectl("delete", "jobset", "by-hand", "-n", NAMESPACE)


def test_admissions_are_rehearsed_as_kueue_decides_them(chain: Chain):
    assert disagreements(chain, fair_sharing=False) == []


def test_down_leaves_the_bucket_alone_and_no_node_process_or_port(chain: Chain):
    engine, console = chain.engine(name="crash"), Console(file=io.StringIO(), width=200)
    assert engine.destroyable()
    assert down(chain.stack_file(name="crash"), chain.site.root, Consent(), console) == 0
    assert "kept: gs://sandbox-local-checkpoints" in told(console)
    assert [resource["type"] for resource in engine.resources()] == ["gcp:storage/bucket:Bucket"]
    assert [record.name.partition("-")[0] for record in chain.site.cloud.iterdir()] == ["storage.Bucket"]
    assert (chain.run_folder("crash") / "checkpoints" / str(STEPS)).is_dir()
    assert taken_ports(chain.site) == []
    wait_until(lambda: processes_of(chain.site) == [], lambda: str(processes_of(chain.site)))


def test_a_second_down_is_one_quiet_line(chain: Chain):
    console = Console(file=io.StringIO(), width=200)
    assert down(chain.stack_file(name="crash"), chain.site.root, Consent(), console) == 0
    assert told(console).startswith("nothing to take down")


def test_up_after_down_resumes_from_the_kept_checkpoint_and_tells_so(chain: Chain):
    more = {"steps": STEPS + 4, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS}
    console = Console(file=io.StringIO(), width=200)
    stack_file = chain.stack_file(name="crash", existing_run="resume", training=more)
    assert up(stack_file, chain.site.root, console) == 0
    assert list(chain.losses("crash")) == list(range(1, STEPS + 5))
    assert f"resumed at step {STEPS}" in told(console)
    assert f"checkpoints      gs://sandbox-local-checkpoints/crash/runs/{chain.run_folder('crash').name}" in told(
        console
    )


def test_objects_survive_a_stop_of_the_sandbox(chain: Chain):
    assert daemon.stop(chain.site)
    daemon.start(chain.site, ignore)
    assert chain.jobset("crash")["status"]["terminalState"] == "Completed"
    wait_until(lambda: takes_jobs(chain), lambda: "the operators do not answer")


def takes_jobs(chain: Chain) -> bool:
    """Whether JobSet and Kueue answer for a job."""
    try:
        chain.kubectl("create", "--dry-run=server", "-f", "-", stdin=HAND_WRITTEN)
    except AssertionError:
        return False
    return True


def log_of_leader(chain: Chain, job: str) -> str:
    logs = (chain.site.logs / "pods").glob(f"{NAMESPACE}_{job}-slice-0-0-*/*.log")
    return "\n".join(log.read_text(errors="replace") for log in logs)


def told(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def addresses_listened_on(processes: list[psutil.Process]) -> list[IPv4Address | IPv6Address]:
    connections = [connection for process in processes for connection in process.net_connections()]
    return [ip_address(connection.laddr.ip) for connection in connections if connection.status == psutil.CONN_LISTEN]

"""Every label, annotation, API version, path, folder and name that several parts write or read; units of time.

The trainer must not import this package. Names that it shares are in `workloads.spec`.
"""

SECONDS_PER_MINUTE, SECONDS_PER_HOUR, MINUTES_PER_HOUR, HOURS_PER_DAY = 60, 3600, 60, 24

# --- Nodes, as GKE labels them
ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
"""Node pool of a node, and so its slice: each slice has its own node pool."""
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""Node label of queued capacity, and key of the taint that GKE puts on such nodes."""
SLICE_GROUP_LABEL = "slice-group"
"""Slice group of a node. Two groups may have the same accelerator and topology."""
HOST_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"
SPOT_LABEL = "cloud.google.com/gke-spot"
RESERVATION_LABEL = "cloud.google.com/reservation-name"
FLEX_START_LABEL = "cloud.google.com/gke-flex-start"
TPU_RESOURCE = "google.com/tpu"
"""Kubernetes resource that counts the chips of a host; also the key of the taint on TPU nodes."""
SYSTEM_POOL = "system"
"""Name of the node pool of the cluster's CPU nodes."""

# --- JobSet (https://github.com/kubernetes-sigs/jobset/blob/main/api/jobset/v1alpha2/jobset_types.go)
JOBSET_GROUP = "jobset.x-k8s.io"
JOBSET_API_VERSION = f"{JOBSET_GROUP}/v1alpha2"
JOBSET_NAMESPACE = "jobset-system"
RESTART_JOB_GATE = "RestartJob"
"""Feature gate of JobSet's controller, off by default, that lets it restart single Jobs."""
SUPERVISOR = "multislice_run.supervisor"
"""Module that starts the program of a pod again in the same pod."""
JOBSET_LABELS = "jobset.sigs.k8s.io"
"""Prefix of the labels that JobSet gives to Jobs and pods."""
JOBSET_LABEL, REPLICATED_JOB_LABEL = f"{JOBSET_LABELS}/jobset-name", f"{JOBSET_LABELS}/replicatedjob-name"
JOB_KEY = f"{JOBSET_LABELS}/job-key"
"""Pod label that is equal on all hosts of one slice and different for every other slice."""
JOB_INDEX_LABEL = f"{JOBSET_LABELS}/job-index"
"""Index of the slice within its job."""
GLOBAL_INDEX_LABEL = f"{JOBSET_LABELS}/job-global-index"
ATTEMPT_LABEL = f"{JOBSET_LABELS}/restart-attempt"
JOB_ATTEMPT_LABEL = f"{JOBSET_LABELS}/job-restart-attempt"
"""Label with the number of restarts of one Job alone. Only with the gate RestartJob."""
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Index of the host within its slice."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""Pod label with the name of its batch Job, in JobSets the Job of its slice."""
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation that places each Job of a JobSet in a separate domain. Its value is the node label of the domain."""
ONLY_JOB = "main"
"""Name of the replicated job of a batch Job, which is read as a JobSet with one."""
SLICES, HEAD = "slice", "head"
"""Names of a JobSet's replicated jobs: one Job per slice, and one for the head if the job has one. The longer of the
two, twice the job's name and what JobSet adds result in a label of 63 characters."""

# --- Kueue
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_API_VERSION = f"{KUEUE_GROUP}/v1beta2"
KUEUE_NAMESPACE = "kueue-system"
PROVISIONING_CONTROLLER = f"{KUEUE_GROUP}/provisioning-request"
"""Controller of the admission checks that hold a job until its hosts have been created."""
MANAGED = {"kueue-managed": "true"}
"""Label of the namespaces whose jobs Kueue holds back until a queue admits them."""
QUEUE_LABEL = f"{KUEUE_GROUP}/queue-name"
GATES = f"{KUEUE_GROUP}/admission-gated-by"
"""Annotation with the gates that keep a job out of its queue until somebody removes them."""
REQUEUED_LAST = ("PodsReadyTimeout", "AdmissionCheck")
"""Eviction reasons after which a workload is requeued at the end, as `infra.operators` configures it."""
PRIORITY_LABEL = f"{KUEUE_GROUP}/priority-class"
MAX_TIME_LABEL = f"{KUEUE_GROUP}/max-exec-time-seconds"

# --- Kubernetes
RBAC_GROUP = "rbac.authorization.k8s.io"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
COLLECTORS_NAMESPACE = "gmp-system"
"""Namespace of Managed Prometheus' collectors, one on each node of a Standard cluster
(https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed)."""
COLLECTOR_LABELS = {"app.kubernetes.io/name": "collector"}

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/{}/pods"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
SECRETS = "/api/v1/namespaces/{}/secrets"
EVENTS = "/api/v1/namespaces/{}/events"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
JOBSETS = f"/apis/{JOBSET_API_VERSION}/namespaces/{{}}/jobsets"
WORKLOADS = f"/apis/{KUEUE_API_VERSION}/namespaces/{{}}/workloads"
LOCAL_QUEUES = f"/apis/{KUEUE_API_VERSION}/namespaces/{{}}/localqueues"
QUEUES = f"/apis/{KUEUE_API_VERSION}/clusterqueues"
FLAVORS = f"/apis/{KUEUE_API_VERSION}/resourceflavors"
"""API paths of collections, with a placeholder for the namespace."""
COLLECTIONS = {"JobSet": JOBSETS, "Job": JOBS}
"""The same of the jobs whose pods can be found, by their kind."""

LOCAL_CHECKPOINTS_FOLDER = "/srv"
"""Folder of the trainer's pods for local checkpoints. Every machine has it, which the sandbox needs for its mounts."""

# --- The stack's own objects
MANAGED_BY = {"managed-by": "tpu-multislice"}
"""Label of every billed resource in Google Cloud. It also keeps a node pool from losing its last label, which GKE would
ignore."""
SERVICE_ACCOUNT = "trainer"
"""Kubernetes service account of the pods, one in each team's namespace."""
TRAINER, PROGRAM, WORKER, SLICE_CHECK = "trainer", "program", "worker", "slice-check"
"""Names of containers: the trainer, any other program, a worker of Pathways, and the init container that checks the
chips first."""
METRICS_PORT_NAME = "metrics"
"""Port on which every host of the trainer serves metrics, whichever job it trains."""
PRICE_KEY = "usd_per_hour"
"""Key of the job's price in its ConfigMap."""
STACK_ANNOTATION = "tpu-multislice.dev/stack"
"""Prefix of the stack that an object in an existing cluster belongs to. Objects in a stack's own cluster have none."""
FUNCTION_ANNOTATION = "tpu-multislice.dev/function"
"""Name of the function that a JobSet calls."""
PUBLISHED, PUBLISHED_KEY = "tpu-multislice", "stack.json"
"""ConfigMap in each team's namespace with what the stack publishes for its members, and the key of that record."""
BUDGET_ANNOTATION = "tpu-multislice.dev/budget-used-up"
"""Annotation of the queue of a team that `multislice enforce-budget` stopped. Its value says how much was used."""
USED_ANNOTATION = "tpu-multislice.dev/budget-used"
"""Annotation of the queue of a team with what its jobs have used, as `multislice enforce-budget` counted it. Members
and jobs cannot change queues."""
RESTARTS_ANNOTATION = "tpu-multislice.dev/restarts"
"""Annotation of a Workload with the causes of its job's restarts, because the cluster forgets its events in an hour.
Commands that read a job write it, also those of members."""
IN_USE = "in-use"
"""ConfigMap that a destroy deletes first. The API server refuses that while something would be lost."""
NO_JOB_RUNS = "no-job-runs"
NO_FOREIGN = {
    "no-foreign-queues": (KUEUE_API_VERSION, "ClusterQueue"),
    "no-foreign-flavors": (KUEUE_API_VERSION, "ResourceFlavor"),
    "no-foreign-namespaces": ("v1", "Namespace"),
}
"""Policies on deleting `IN_USE`, and the kinds of objects of which the cluster may contain only the stack's own."""

TEAMS_FOLDER = "teams"
"""Folder of the checkpoint bucket that no job of the stack may have as its name. A job keeps its runs in a folder with
its name; everything else of a team is in one folder below this one. The pods of a team write only to these folders
(`infra.identity`)."""
ON_HOSTS = "all_nodes"
"""Placeholder of the namespace for pods that act as their node. No namespace can have this name."""


def everywhere(path: str) -> str:
    """Return the path of a collection in all namespaces."""
    return path.replace("namespaces/{}/", "")


def slice_pool(group_name: str, index: int) -> str:
    """Return the node pool of one slice of a group. It is also the displayed name of the slice."""
    return f"{group_name}-{index}"


def team_of(local_queue_name: str) -> str:
    """Return the team, and so the ClusterQueue, of a LocalQueue of the stack. Team names contain no dots."""
    return local_queue_name.partition(".")[0]


def job_resource(job: str) -> str:
    """Return the name of the Pulumi resource that is the JobSet of a job."""
    return f"job-{job}"


def secret_name(job: str) -> str:
    """Return the name of the Kubernetes Secret with the secrets of a job."""
    return f"{job}-secrets"


def price_name(job: str) -> str:
    """Return the name of the ConfigMap with the price of a job."""
    return f"{job}-price"


def team_folder(namespace: str) -> str:
    """Return the folder of a team, by its namespace."""
    return f"{TEAMS_FOLDER}/{namespace}"


def call_folder(namespace: str, call: str) -> str:
    """Return the folder with the inputs and results of the hosts of a function call."""
    return f"{team_folder(namespace)}/calls/{call}"


def jobs_folder(namespace: str) -> str:
    """Return the folder with the files of a team's jobs that are not part of a stack file, each in one of its name."""
    return f"{team_folder(namespace)}/jobs"


def programs_folder(namespace: str) -> str:
    """Return the folder of compiled programs, which every later start of the team's jobs runs without checking them."""
    return f"{team_folder(namespace)}/compile-cache"


# --- Google Cloud
APIS = (
    "artifactregistry",
    "billingbudgets",
    "cloudresourcemanager",
    "compute",
    "container",
    # Image streaming: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements
    "containerfilesystem",
    "iam",
    "logging",
    "monitoring",
)
"""APIs that must be enabled, without `.googleapis.com`."""
OFFLINE = "is unknown without Google Cloud"
"""Part of the message with which the sandbox's provider refuses to answer in an offline preview."""

"""Every label, annotation, API version, folder and name that more than one part of the project writes or reads.

The trainer must not import this package: names that it shares stand in `workloads.spec`.
"""

type Manifest = dict[str, object]
KUEUE_NAMESPACE = "kueue-system"
SLICE_GROUP_LABEL = "slice-group"
"""Node label with the slice group's name: two groups may have the same accelerator and topology."""
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
"""Node label with the slice: each is a node pool of its own."""
KUEUE_API_VERSION = "kueue.x-k8s.io/v1beta2"
WAIT_FOR = "pulumi.com/waitFor"


def slice_pool(group_name: str, index: int) -> str:
    """The node pool of one slice of a group, which is the slice's name wherever nodes are shown."""
    return f"{group_name}-{index}"


SLICES, HEAD = "slice", "head"
"""Names of a JobSet's replicated jobs: a Job for each slice, and the one for the head of a job that has one. The
longer of them, twice the job's name and what JobSet adds make a label of 63 characters."""
SYSTEM_POOL = "system"
"""The node pool of the cluster's CPU nodes."""
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""JobSet's annotation with the label of the places that each of its Jobs has alone."""
HOST_LABEL = "kubernetes.io/hostname"
JOBSET_LABEL, REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"
"""Labels of pods and Jobs with the names of their JobSet and of their replicated job."""
JOB_KEY = "jobset.sigs.k8s.io/job-key"
"""Pod label that is the same for the hosts of one slice and for no others."""
JOBSET_API_VERSION = "jobset.x-k8s.io/v1alpha2"
JOBSET_NAMESPACE = "jobset-system"
MAX_TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TPU_RESOURCE = "google.com/tpu"
"""Kubernetes resource that counts the chips of a host; also the key of the taint on TPU nodes."""
SERVICE_ACCOUNT = "trainer"
"""Kubernetes service account of the pods, one in each team's namespace."""
TRAINER = "trainer"
"""Name of the trainer's container."""
PROGRAM = "program"
"""Name of the container of another program."""
SLICE_CHECK = "slice-check"
"""Name of the init container that checks the devices before that program."""
PRICE_KEY = "usd_per_hour"
"""Of the ConfigMap with the job's price."""
METRICS_PORT_NAME = "metrics"
"""Of the port where every host of the trainer answers who collects metrics, whichever job it trains."""


def secret_name(job: str) -> str:
    """The Kubernetes Secret with the secrets of the job of that name, in its namespace."""
    return f"{job}-secrets"


def price_name(job: str) -> str:
    """The ConfigMap with the price of the job of that name, in its namespace."""
    return f"{job}-price"


TEAMS_FOLDER = "teams"
"""A job of the stack cannot have this name."""
ON_HOSTS = "all_nodes"
"""Stands for the pods that act as their node, in place of a namespace; no namespace has such a name."""


def team_folder(namespace: str) -> str:
    """The folder of a team, by its namespace."""
    return f"{TEAMS_FOLDER}/{namespace}"


def call_folder(namespace: str, call: str) -> str:
    """What is sent to the hosts of a call of a function, and what they leave."""
    return f"{team_folder(namespace)}/calls/{call}"


def programs_folder(namespace: str) -> str:
    """Compiled programs, which every later start of the team's jobs finds, and runs without a look at their content."""
    return f"{team_folder(namespace)}/compile-cache"


NO_JOB_RUNS = "no-job-runs"
NO_FOREIGN = {
    "no-foreign-queues": (KUEUE_API_VERSION, "ClusterQueue"),
    "no-foreign-flavors": (KUEUE_API_VERSION, "ResourceFlavor"),
    "no-foreign-namespaces": ("v1", "Namespace"),
}
"""Kinds of which the stack declares every object in its cluster, by the names of their policies."""
MARK = "in-use"
FUNCTION_ANNOTATION = "tpu-multislice.dev/function"
COLLECTORS_NAMESPACE = "gmp-system"
"""Of the collectors, one on each node of a cluster that is no Autopilot one
(https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed)."""
COLLECTOR_LABELS = {"app.kubernetes.io/name": "collector"}
OURS = {"pulumi.com/patchForce": "true"}
"""Takes back what another program has changed. Without it an update ends in a conflict, except with kubectl, whose
changes the provider always takes back
(https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply)."""

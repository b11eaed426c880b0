"""Everything that only a run on Google Cloud can confirm, in the order in which to check it.

`multislice confirm` answers the items with a question. A person answers the others, as `how` says. The documentation's
table of confirmations is generated from this one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cli.confirm import questions
from cli.confirm.questions import Evidence, Found

STAGES = (
    "Free: no resource is created",
    "A cluster without chips: `jobs: {}` and one `flex-start` group",
    "One small slice: one job of the preset `tiny`",
    "Several slices",
    "Other capacity, and scale",
)
"""Stages, each of which costs more than the one before."""


@dataclass(frozen=True)
class Item:
    """One assumption about Google Cloud or TPUs."""

    name: str
    """Name in records. It never changes."""
    stage: int
    """Index in `STAGES`."""
    title: str
    assumption: str
    how: str
    """How a person finds out, or what must have run before `multislice confirm` can answer."""
    question: Callable[[Evidence], Found | None] | None = None
    """Returns what was found, or None without evidence. None: only a person can answer."""
    real: str = ""
    """What a sandbox lacks for an answer: `chips` or `Google Cloud`. Empty: the sandbox answers too."""


ITEMS = (
    Item(
        "access",
        0,
        "logins, roles, quota",
        "the roles of the workflows contain every permission that the program needs, as in a public copy of Google's"
        " role definitions",
        "`multislice doctor -s STACK`",
        questions.access,
        "Google Cloud",
    ),
    Item(
        "state",
        0,
        "state in a bucket, KMS key",
        "the documented `gcloud` commands work",
        "run them; `pulumi stack init`",
    ),
    Item(
        "plugins",
        0,
        "published plugins",
        "a preview makes the same plan as in the sandbox, and read-only roles are enough",
        "`pulumi preview --stack STACK`",
        questions.preview,
        "Google Cloud",
    ),
    Item("workflows", 0, "workflows on GitHub", "they behave as in their tests", "open a pull request"),
    Item(
        "apis",
        1,
        "APIs of a new project",
        "an `up` may fail once while an API is being enabled; the next one succeeds",
        "`multislice up -s STACK`",
    ),
    Item(
        "existing",
        1,
        "existing VPC or cluster",
        "Google's answers have the form of the provider's documentation, and the commands that a"
        " preview prints for [your own VPC or cluster](../how-to/existing-cluster.md) add what is missing",
        "`pulumi preview --stack STACK`",
    ),
    Item(
        "admission-policies",
        1,
        "admission policies",
        "the roles allow ValidatingAdmissionPolicies, which the dataset of roles does not name",
        "`multislice up -s STACK`",
        questions.policies,
    ),
    Item(
        "second-preview",
        1,
        "values that GKE writes back",
        "the preview is empty. `maintenancePolicies` of flex-start pools and `advancedMachineFeatures` of"
        " `ct6e-standard-8t` are most likely to differ; the second would replace the pool. Do not run `up --refresh`"
        " before the preview is empty",
        "`pulumi preview --refresh --stack STACK`",
        questions.second_preview,
    ),
    Item(
        "destroy",
        1,
        "`pulumi destroy`",
        "GKE's own namespaces are called `kube-*`, `gke-*`, `gmp-*` or `*-system`; the destroy refuses any other that"
        " the stack did not make. The network can be deleted, because with load balancing off nothing adds firewall"
        " rules",
        "`pulumi destroy --stack STACK`",
    ),
    Item(
        "kept-bucket",
        1,
        "kept bucket",
        "the next `up` adopts it; hierarchical namespace and soft delete are billed as declared",
        "`multislice up -s STACK`",
    ),
    Item(
        "team-folders",
        1,
        "folders of the teams",
        "the trainer saves and restores with its rights on managed folders and `roles/storage.legacyBucketReader` on"
        " the bucket. That it cannot write another team's folder, a person has to try",
        "a job that saves",
        questions.saves,
    ),
    Item(
        "environment-bucket",
        1,
        "bucket of an environment",
        "it can be deleted, because it is flat: the provider deletes objects but no folders",
        "`multislice env destroy`",
    ),
    Item(
        "upgrade",
        1,
        "upgrade of JobSet and Kueue",
        "published images behave as the charts' Go modules do in the sandbox",
        "upgrade them as documented",
    ),
    Item(
        "budget",
        1,
        "budget of Cloud Billing",
        "the API accepts the budget with the project's quota, and alerts arrive",
        "`budget.alerts` in the stack file, `multislice up -s STACK`",
    ),
    Item(
        "node-pool",
        2,
        "node pool",
        "GKE accepts machine type, topology and placement of each generation. 7x needs a workload policy with the"
        " topology and an empty placement type. Create timeouts of 60 minutes, plus 5 for each further pool, are a"
        " guess",
        "`multislice up -s STACK`",
        questions.node_pools,
        "Google Cloud",
    ),
    Item(
        "chips",
        2,
        "image",
        "user 10001 may open the TPU devices of a host (if not: `run_as_user`, `privileged`)",
        "a job that takes a step",
        questions.steps,
        "chips",
    ),
    Item(
        "step",
        2,
        "trainer's step",
        "a chip runs the program that the TPU compiler produced",
        "a job that takes a step",
        questions.steps,
        "chips",
    ),
    Item(
        "memory",
        2,
        "memory",
        "a slice has as much free memory as the compiler assumes",
        "a job that the preflight says nearly fills the memory",
        questions.memory,
        "chips",
    ),
    Item(
        "speed",
        2,
        "speed",
        "four estimates within 3 % of published times, all of another trainer",
        "`multislice preflight -s STACK`, then a job",
        questions.speed,
        "chips",
    ),
    Item(
        "attention",
        2,
        "attention kernels",
        "speed and precision of `fused` and `splash-2048`, which are correct on CPU devices. `training.attention: auto`"
        " tries both against plain attention and `splash` before it uses one",
        "a job with `training.attention: auto`",
        questions.attention,
        "chips",
    ),
    Item(
        "compile-cache",
        2,
        "compile cache",
        "a slice computes the same key as the compilation without chips, so a later attempt compiles in less than half"
        " the time",
        "a job that started twice",
        questions.compile_cache,
        "chips",
    ),
    Item(
        "fuse",
        2,
        "Cloud Storage FUSE",
        "the mount works; only the API server has validated it",
        "a job with `volumes`",
    ),
    Item("metrics", 2, "metrics and alerts", "GKE exports them under the documented names", "the dashboard"),
    Item(
        "megascale",
        3,
        "`MEGASCALE_*`",
        "GKE sets them for each host of a JobSet; a host without them refuses to train",
        "a job on several slices",
        questions.several_slices,
    ),
    Item(
        "slice-check",
        3,
        "slice check of containers",
        "an init container gets chips from the device plugin, and returns them before the program starts, without"
        " GKE's webhook",
        "a job with `check_slices`",
    ),
    Item(
        "second-network",
        3,
        "second network",
        "pods on the host's network use both interfaces, with the speedup that others measured",
        "`multislice report -s STACK` with and without",
    ),
    Item(
        "recovery",
        3,
        "crash and restart",
        "recovery takes as long as in the results of `make faults`, plus the time in which GKE replaces a host",
        "kill a host's process",
        questions.recovery,
    ),
    Item(
        "ram-disks",
        3,
        "RAM disks of nodes",
        "GKE's multi-tier checkpointing mounts a RAM disk into pods of the level `restricted`, gives it to their group"
        " because the volume has `fsType`, and keeps its files when a pod ends. A chip of a node keeps its coordinates,"
        " so that a restarted job finds its shards on its own nodes",
        "a job with `training.local_save_every_steps: 1`; kill a host's process",
    ),
    Item(
        "notice",
        3,
        "notice time of spot",
        "a preempted host has time for a last save",
        "a job on spot that was preempted",
        questions.notice,
        "chips",
    ),
    Item(
        "quarantine",
        3,
        "quarantine, slice check",
        "a broken chip gives wrong results of the kind that the tests inject",
        "wait for one",
    ),
    Item(
        "ready-timeouts",
        3,
        "Kueue waiting for pods",
        "the timeouts fit real capacity",
        "a job whose pods cannot start",
    ),
    Item(
        "pathways",
        3,
        "Pathways",
        "workers on several hosts are placed, and Google's servers run in them. The sandbox accepts and admits the"
        " JobSet and places its head",
        "a job with `pathways`, or a function with `backend='pathways'`",
    ),
    Item(
        "flex-start",
        4,
        "flex-start",
        "the autoscaler creates a whole slice for pods with affinity on the job's key",
        "a job on a group with `flex-start`",
        lambda evidence: questions.on_capacity(evidence, "flex-start"),
        "Google Cloud",
    ),
    Item(
        "queued",
        4,
        "queued provisioning",
        "GKE answers Kueue's request with the hosts of one slice, needs the parameter `tpu-topology`, and installs its"
        " resource kind before Kueue starts",
        "a job on a group with `queued`",
        lambda evidence: questions.on_capacity(evidence, "queued"),
        "Google Cloud",
    ),
    Item(
        "stockout",
        4,
        "stockout",
        "GKE keeps a pool that got no machines, and the published plugin reports the failure once",
        "a zone that is sold out",
    ),
    Item(
        "controller-memory",
        4,
        "memory of Kueue and JobSet",
        "0.16 MiB for each host, measured with up to 2,048 nodes; with smaller pods 414 and 321 MiB at 4,099 nodes",
        "`kubectl top pods -n kueue-system`",
    ),
)

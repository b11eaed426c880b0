"""Everything that only a run on Google Cloud can confirm, in the order in which to check it.

`multislice doctor` lists what concerns a stack. `docs/reference/not-confirmed.md` lists all of it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from infra.review.table import Table
from infra.stack.settings.jobs import AnyJob
from infra.stack.settings.stack import Settings

STAGES = (
    "Free: no resource is created",
    "A cluster without chips: `jobs: {}` and one `flex-start` group",
    "One small slice: one job of the preset `tiny`",
    "Several slices",
    "Other capacity, and scale",
)
"""Stages, each of which costs more than the one before."""
_PAGE = "docs/reference/not-confirmed.md"


@dataclass(frozen=True)
class Assumption:
    """One assumption about Google Cloud or TPUs."""

    stage: int
    """Index in `STAGES`."""
    subject: str
    assumption: str
    how: str
    """What to do to find out whether it holds."""
    concerns: Callable[[Settings], object] = lambda _: True
    """Returns whether a stack depends on it."""


def _joins_existing(settings: Settings) -> bool:
    return settings.cluster.existing is not None or settings.network.existing is not None


def _own_cluster(settings: Settings) -> bool:
    return settings.cluster.existing is None


def _trains(settings: Settings) -> bool:
    return bool(settings.training_jobs)


def _capacity(kind: str) -> Callable[[Settings], bool]:
    return lambda settings: any(group.capacity.kind == kind for group in settings.slices.values())


def _jobs(wanted: Callable[[AnyJob], object]) -> Callable[[Settings], bool]:
    return lambda settings: any(map(wanted, settings.jobs.values()))


ASSUMPTIONS = (
    Assumption(
        0,
        "logins, roles, quota",
        "the roles of the workflows contain every permission that the program needs",
        "`multislice doctor -s STACK`",
    ),
    Assumption(
        0, "state in a bucket, KMS key", "the documented `gcloud` commands work", "run them; `pulumi stack init`"
    ),
    Assumption(
        0,
        "published plugins",
        "a preview makes the same plan as in the sandbox, with read-only roles",
        "`pulumi preview --stack STACK`",
    ),
    Assumption(0, "workflows on GitHub", "they behave as in their tests", "open a pull request"),
    Assumption(
        1,
        "APIs of a new project",
        "an `up` fails at most once while an API is being enabled",
        "`multislice up -s STACK`",
        _own_cluster,
    ),
    Assumption(
        1,
        "existing VPC or cluster",
        "Google's answers are as documented, and the commands that a preview prints for "
        "[your own VPC or cluster](../how-to/existing-cluster.md) add what is missing",
        "`pulumi preview --stack STACK`",
        _joins_existing,
    ),
    Assumption(
        1,
        "admission policies",
        "the roles allow ValidatingAdmissionPolicies",
        "`multislice up -s STACK`",
    ),
    Assumption(
        1,
        "values that GKE writes back",
        "the preview is empty. `maintenancePolicies` of flex-start pools and `advancedMachineFeatures` of "
        "`ct6e-standard-8t` are most likely to differ; the second would replace the pool. Do not run `up "
        "--refresh` before the preview is empty",
        "`pulumi preview --refresh --stack STACK`",
        _own_cluster,
    ),
    Assumption(
        1,
        "`pulumi destroy`",
        "GKE's own namespaces are called `kube-*`, `gke-*`, `gmp-*` or `*-system`; the destroy refuses any other "
        "that the stack did not make. The network can be deleted",
        "`pulumi destroy --stack STACK`",
        _own_cluster,
    ),
    Assumption(
        1,
        "kept bucket",
        "the next `up` adopts it; hierarchical namespace and soft delete are billed as declared",
        "`multislice up -s STACK`",
    ),
    Assumption(
        1,
        "folders of the teams",
        "the trainer saves and restores with its rights on managed folders, and cannot write another team's",
        "a job that saves",
        _trains,
    ),
    Assumption(
        1,
        "upgrade of JobSet and Kueue",
        "published images behave as their Go modules do in the sandbox",
        "upgrade them as documented",
    ),
    Assumption(
        1,
        "budget of Cloud Billing",
        "the API accepts the budget with the project's quota, and alerts arrive",
        "`budget.alerts` in the stack file, `multislice up -s STACK`",
        lambda settings: settings.budget and settings.budget.alerts,
    ),
    Assumption(
        2,
        "node pool",
        "GKE accepts machine type, topology and placement of each generation, and for 7x a workload policy with an "
        "empty placement type. Timeouts of 60 minutes, plus 5 for each further pool, suffice",
        "`multislice up -s STACK`",
    ),
    Assumption(
        2,
        "image",
        "user 10001 may open the TPU devices of a host, `/dev/vfio` (if not: `run_as_user`, `privileged`)",
        "a job that takes a step",
    ),
    Assumption(
        2,
        "trainer's step",
        "a chip runs the program that the TPU compiler produced",
        "a job that takes a step",
        _trains,
    ),
    Assumption(
        2,
        "memory",
        "a slice has as much free memory as the compiler assumes",
        "a job that the preflight says nearly fills the memory",
        _trains,
    ),
    Assumption(
        2,
        "speed",
        "a step takes as long as estimated",
        "`multislice preflight -s STACK`, then a job",
        _trains,
    ),
    Assumption(
        2,
        "attention kernels",
        "`fused` and `splash-2048` are as fast and precise as expected",
        "a job with `training.attention: auto`",
        _trains,
    ),
    Assumption(
        2,
        "compile cache",
        "a slice computes the same key as the compilation without chips",
        "a job that started twice",
        _trains,
    ),
    Assumption(
        2,
        "Cloud Storage FUSE",
        "the mount works, and its sidecar meets the Pod Security level `restricted`",
        "a job of a stack with `datasets.mount`",
        lambda settings: settings.mounted_bucket,
    ),
    Assumption(
        2,
        "metrics and alerts",
        "GKE exports them under the documented names",
        "the Grafana dashboard",
        lambda settings: settings.monitoring.enabled,
    ),
    Assumption(
        3,
        "`MEGASCALE_*`",
        "GKE sets them for each host of a JobSet; a host without them refuses to train",
        "a job on several slices",
        _jobs(lambda job: job.slices.count > 1),
    ),
    Assumption(
        3,
        "slice check of containers",
        "an init container gets chips from the device plugin, and returns them before the program starts",
        "a job with `check_slices`",
        _jobs(lambda job: job.check_slices),
    ),
    Assumption(
        3,
        "second network",
        "pods on the host's network use both interfaces, with the speedup that others measured",
        "`multislice report -s STACK` with and without",
        lambda settings: settings.second_network,
    ),
    Assumption(
        3,
        "crash and restart",
        "recovery takes as long as in `make faults`, plus the time in which GKE replaces a host",
        "kill a host's process",
    ),
    Assumption(
        3,
        "notice time of spot",
        "a preempted host has time for a last save",
        "a job on spot that was preempted",
        _capacity("spot"),
    ),
    Assumption(
        3,
        "quarantine, slice check",
        "a broken chip gives wrong results of the kind that the tests inject",
        "wait for one",
        _trains,
    ),
    Assumption(3, "Kueue waiting for pods", "the timeouts fit real capacity", "a job whose pods cannot start"),
    Assumption(
        3,
        "Pathways",
        "workers on several hosts are placed, and Google's servers run in them",
        "a job with `pathways`, or a function with `backend='pathways'`",
        _jobs(lambda job: job.pathways),
    ),
    Assumption(
        4,
        "flex-start",
        "the autoscaler creates a whole slice for pods with affinity on the job's key",
        "a job on a group with `flex-start`",
        _capacity("flex-start"),
    ),
    Assumption(
        4,
        "queued provisioning",
        "GKE answers Kueue's request with the hosts of one slice, needs the parameter `tpu-topology`, and "
        "installs its resource kind before Kueue starts",
        "a job on a group with `queued`",
        _capacity("queued"),
    ),
    Assumption(
        4,
        "stockout",
        "GKE keeps a pool that got no machines, and the published plugin reports the failure once",
        "a zone that is sold out",
    ),
    Assumption(
        4,
        "memory of Kueue and JobSet",
        "they need 0.16 MiB for each host, as measured with up to 2,048 nodes",
        "`kubectl top pods -n kueue-system`",
    ),
)


def unconfirmed(settings: Settings) -> tuple[Assumption, ...]:
    """Return the assumptions that a stack in Google Cloud depends on."""
    return tuple(each for each in ASSUMPTIONS if each.concerns(settings))


def as_table(found: tuple[Assumption, ...]) -> Table:
    """Return the section of `multislice doctor`."""
    return Table(
        title="Not confirmed on Google Cloud or TPUs",
        verdict=f"this stack depends on {len(found)} assumptions",
        state="notable",
        columns=("subject", "how to check"),
        rows=[(each.subject.replace("`", ""), each.how.replace("`", "")) for each in found],
        notes=[f"{_PAGE} says what is assumed"],
    )

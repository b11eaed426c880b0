"""What must hold between a job and the slices that it runs on."""

from collections.abc import Iterator, Sequence

from infra.names import TPU_RESOURCE
from policy.jobs import EXCLUSIVE_TOPOLOGY, SliceJob, pools_of, slice_jobs
from policy.resources import at, every
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule
from policy.slices import NODE_POOL_LABEL, TpuPool, tpu_pools

_MULTISLICE = "https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ONE_POOL_ANNOTATION = "kueue.x-k8s.io/podset-slice-required-topology"

type Matched = list[tuple[SliceJob, list[TpuPool]]]


def _matched(resources: Sequence[Declared]) -> Matched:
    pools = tpu_pools(resources)
    return [(job, pools_of(job, pools)) for job in slice_jobs(resources)]


def _one_kind(resources: Sequence[Declared]) -> Iterator[Broken]:
    for job, pools in _matched(resources):
        kinds = sorted({f"{pool.shape.machine_type} {pool.shape.topology}" for pool in pools})
        if len(kinds) != 1:
            selector = dict(at(job.pod, "nodeSelector") or {})
            got = f"{len(kinds)} kinds: {', '.join(kinds)}" if kinds else "no pool of the stack"
            yield job.broken(f"expected its node selector {selector} to match slices of one kind, got {got}")


def _enough_slices(resources: Sequence[Declared]) -> Iterator[Broken]:
    for job, pools in _matched(resources):
        if pools and job.replicas > len(pools):
            yield job.broken(f"expected at most as many replicas as slices match, {len(pools)}, got {job.replicas}")
        if pools and job.replicas > 1 and not pools[0].shape.multi_host:
            yield job.broken(f"expected one replica on slices of a single host, got {job.replicas}")
        if job.replicas > 1 and any(pool.queued for pool in pools):
            yield job.broken(f"expected one replica on queued slices, since a request brings one, got {job.replicas}")


def _pod_for_each_host(resources: Sequence[Declared]) -> Iterator[Broken]:
    for job, pools in _matched(resources):
        got = tuple(at(job.job, key) for key in ("parallelism", "completions"))
        for hosts in sorted({pool.shape.hosts for pool in pools}):
            if any((count or 1) != hosts for count in got):
                yield job.broken(f"expected parallelism and completions of {hosts}, the hosts of a slice, got {got}")


def _chips_of_a_host(resources: Sequence[Declared]) -> Iterator[Broken]:
    for job, pools in _matched(resources):
        got = {job.requests[TPU_RESOURCE], job.chip_limit}
        for chips in sorted({pool.shape.chips_per_host for pool in pools}):
            if got != {chips}:
                asked = " and ".join(f"{float(value):g}" for value in got)
                yield job.broken(f"expected {TPU_RESOURCE} {chips}, all chips of a host, got {asked}")


def _one_pool_for_a_slice(resources: Sequence[Declared]) -> Iterator[Broken]:
    for job, pools in _matched(resources):
        from_nothing = any(pool.flex_start and not pool.queued for pool in pools)
        by_request = bool(pools) and all(pool.queued for pool in pools)
        ways = _ways(job)
        if from_nothing and "affinity" not in ways:
            yield job.broken(f"expected affinity on the node pool, for flex-start pools are empty, got {_told(ways)}")
        elif not ways and not by_request and any(pool.shape.multi_host for pool in pools):
            yield job.broken(f"expected a slice of the job to be kept in one node pool, got {_told(ways)}")
        elif len(ways) > 1:
            yield job.broken(f"expected one way to keep a slice together, got {_told(ways)}")


def _ways(job: SliceJob) -> set[str]:
    """What keeps the pods of a slice in one node pool."""
    affinity = at(job.pod, "affinity")
    together, apart = (
        [at(term, "topologyKey") for term in every(affinity, kind, _REQUIRED)]
        for kind in ("podAffinity", "podAntiAffinity")
    )
    of_pods = at(job.job, "template", "metadata", "annotations") or {}
    found = {
        "affinity": NODE_POOL_LABEL in together and NODE_POOL_LABEL in apart,
        "exclusive topology": job.annotations.get(EXCLUSIVE_TOPOLOGY) == NODE_POOL_LABEL,
        "topology-aware scheduling": of_pods.get(_ONE_POOL_ANNOTATION) == NODE_POOL_LABEL,
    }
    return {way for way, there in found.items() if there}


def _told(ways: set[str]) -> str:
    return " and ".join(sorted(ways)) or "nothing"


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "job-selects-slices",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A job selects slices of exactly one kind",
            "Pods whose selector no node matches wait for ever; slices of two kinds in one job disagree on hosts and"
            " mesh.",
            "Name slice groups of equal generation and topology in job.slices.",
            _MULTISLICE,
        ),
        _one_kind,
    ),
    StackRule(
        About(
            "job-slices",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A job has no more slices than there are, and joins only those that can be joined",
            "The job waits for slices that never come, and holds those that it has.",
            "Lower job.slices.count, or raise count of the slice group.",
            _MULTISLICE,
        ),
        _enough_slices,
    ),
    StackRule(
        About(
            "job-hosts",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A job has one pod for each host of a slice",
            "With fewer the TPU runtime waits for the missing workers, with more the last pods never start.",
            "Take parallelism and completions from the slice group's topology.",
            _MULTISLICE,
        ),
        _pod_for_each_host,
    ),
    StackRule(
        About(
            "job-chips",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A pod takes all chips of its host",
            "GKE schedules a pod of a multi-host slice only if it requests every chip of the host; the rest would be"
            " billed and idle.",
            "Take requests and limits of google.com/tpu from the slice group's machine type.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/tpus",
        ),
        _chips_of_a_host,
    ),
    StackRule(
        About(
            "job-one-pool-for-a-slice",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "The pods of a slice go to one node pool, which no other slice shares",
            "Pods of one slice on two node pools are not joined by ICI: the job hangs in its first collective.",
            "Leave placement to infra.pods: exclusive topology or topology-aware scheduling for standing slices,"
            " affinity for flex-start, nothing for queued ones.",
            "https://jobset.sigs.k8s.io/docs/tasks/",
        ),
        _one_pool_for_a_slice,
    ),
)

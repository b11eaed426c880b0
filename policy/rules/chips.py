"""Rules on chips: their cost, how the jobs on them save and end, and which queues assign them.

Settings that contradict each other never reach a plan, because `infra.stack.settings` refuses them. What the program
renders from settings is compared with golden files. The rules here are for settings that are valid but expensive, and
for node pools, jobs and queues that someone adds to the program.
"""

from collections.abc import Callable, Iterator, Sequence

from infra.stack.names import MAX_TIME_LABEL, QUEUE_LABEL
from policy.rule import (
    JOB_SET,
    NODE_POOL,
    Declared,
    ResourceRule,
    Rule,
    StackCheck,
    StackRule,
    Violation,
    at,
    every,
    must_be,
    namespace,
    object_name,
    select_kind,
    select_type,
    show,
)
from policy.slices import SliceJob, flavors, given_out, is_tpu, quotas, ready_timeouts, shape, slice_jobs, tpu_pools

_MAX_ON_DEMAND_CHIPS = 256
"""A pod of v6e or v5e, which costs about 500,000 US dollars a month for v6e."""
_MAX_LOST_MINUTES = 60
"""Minutes of work between two saves, which are billed and repeated after a preemption."""
_MIN_GRACE_SECONDS = 30
_MIN_PATIENCE_HOURS = 24
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_STASH = "pulumi:index:Stash"
"""Resource with the day on which a stack expires."""
_UNCOUNTED = ("RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts")
_QUOTAS = "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/"
_SPOT = "https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms"


def _few_on_demand(resources: Sequence[Declared]) -> Iterator[Violation]:
    chips = sum(pool.shape.chips for pool in tpu_pools(resources) if pool.on_demand)
    if chips > _MAX_ON_DEMAND_CHIPS:
        yield Violation(f"expected at most {_MAX_ON_DEMAND_CHIPS} chips on demand, got {chips}", None)


def _offered(pool: Declared) -> Iterator[str]:
    if is_tpu(pool):
        try:
            shape(pool)
        except ValueError as error:
            yield f"expected a slice that GKE offers; {error}"


def _one_source(resource: Declared) -> Iterator[str]:
    for pool in tpu_pools([resource]):
        if pool.reservation_type == "SPECIFIC_RESERVATION" and not pool.preemptible:
            affinity = at(resource.properties, "nodeConfig", "reservationAffinity")
            if at(affinity, "key") != _RESERVATION_KEY or len(every(affinity, "values")) != 1:
                yield f"expected reservationAffinity with key {_RESERVATION_KEY} and one reservation, got another"
        elif pool.reservation_type != "NO_RESERVATION":
            source = "spot or flex-start" if pool.preemptible else "chips that are not reserved"
            yield f"expected NO_RESERVATION for {source}, got {show(pool.reservation_type)}"


def _ends(resources: Sequence[Declared]) -> Iterator[Violation]:
    pools = tpu_pools(resources)
    expires = any(at(stash.properties, "input", "expires_on") for stash in select_type(resources, _STASH))
    for job in slice_jobs(resources):
        deadline = at(job.resource.properties, "metadata", "labels", MAX_TIME_LABEL)
        # Only the trainer detects its own hangs.
        endless = job.runs_on(pool for pool in pools if pool.on_demand or not job.specification)
        if endless and deadline is None and not expires:
            message = f"expected label {MAX_TIME_LABEL} or a day on which the stack expires, got neither"
            yield Violation(message, job.resource.urn)


def _of_preemptible_jobs(check: Callable[[SliceJob], Iterator[str]]) -> StackCheck:

    def checked(resources: Sequence[Declared]) -> Iterator[Violation]:
        pools = [pool for pool in tpu_pools(resources) if pool.preemptible]
        for job in slice_jobs(resources):
            if job.runs_on(pools):
                yield from (Violation(f"{job.name}: {message}", job.resource.urn) for message in check(job))

    return checked


def _saves(job: SliceJob) -> Iterator[str]:
    rules = every(job.resource.properties, "spec", "failurePolicy", "rules")
    if not {*_UNCOUNTED} & {at(rule, "action") for rule in rules}:
        yield f"expected a rule of failurePolicy with the action {' or '.join(_UNCOUNTED)}, got none"
    if job.specification:
        minutes = at(job.specification, "training", "save_every_minutes")
        if minutes is not None and minutes > _MAX_LOST_MINUTES:
            yield f"expected a save at least every {_MAX_LOST_MINUTES} minutes, got {minutes:g}"
        path = at(job.specification, "storage", "path")
        if path is None or not path.startswith("gs://"):
            yield f"expected checkpoints in a bucket, got {path!r}"


def _leaves_in_order(job: SliceJob) -> Iterator[str]:
    grace = at(job.pod, "terminationGracePeriodSeconds")
    if grace is not None and grace < _MIN_GRACE_SECONDS:
        yield f"expected {_MIN_GRACE_SECONDS} seconds or more for a last save, got {grace}"


def _restarts(job_set: Declared) -> Iterator[str]:
    if not at(job_set.properties, "spec", "failurePolicy", "maxRestarts"):
        yield "expected failurePolicy.maxRestarts of 1 or more, got none"


def _kept(job_set: Declared) -> Iterator[str]:
    kept = at(job_set.properties, "spec", "ttlSecondsAfterFinished")
    if kept is not None:
        yield f"expected no spec.ttlSecondsAfterFinished, got {kept}"
    if not job_set.delete_before_replace:
        yield "expected the option deleteBeforeReplace, got nothing"


def _queued(resources: Sequence[Declared]) -> Iterator[Violation]:
    queues = {(namespace(queue), object_name(queue)) for queue in select_kind(resources, "LocalQueue")}
    for job_set in select_kind(resources, "JobSet"):
        name, where = at(job_set.properties, "metadata", "labels", QUEUE_LABEL), namespace(job_set)
        if (where, name) not in queues:
            here = ", ".join(sorted(queue for place, queue in queues if place == where)) or "none"
            expected = f"label {QUEUE_LABEL} with a queue of namespace {where!r} ({here})"
            yield Violation(f"expected {expected}, got {show(name)}", job_set.urn)
        if at(job_set.properties, "spec", "suspend") is not None:
            yield Violation("expected no spec.suspend, which only Kueue sets, got one", job_set.urn)


def _no_more(resources: Sequence[Declared]) -> Iterator[Violation]:
    counted, given = flavors(resources), given_out(resources)
    for name, pools in counted.items():
        chips = sum(pool.shape.chips for pool in pools)
        if given[name] > chips:
            yield Violation(f"expected quotas of at most {chips} chips of flavor {name!r}, got {given[name]}", None)
    for pool in tpu_pools(resources):
        if len(names := [name for name, pools in counted.items() if pool in pools]) > 1:
            message = f"expected one flavor with the labels of this slice, got {', '.join(names)}"
            yield Violation(message, pool.resource.urn)


def _no_less(resources: Sequence[Declared]) -> Iterator[Violation]:
    counted, given = flavors(resources), given_out(resources)
    for pool in tpu_pools(resources) if counted else ():
        if not any(pool in pools for pools in counted.values()):
            yield Violation("expected a flavor with the labels of this slice, got none", pool.resource.urn)
    for name, pools in counted.items():
        chips = sum(pool.shape.chips for pool in pools)
        if given and given[name] < chips:
            yield Violation(f"expected quotas of all {chips} chips of flavor {name!r}, got {given[name]}", None)
    for queue, name, quota in quotas(resources):
        for chips in {pool.shape.chips for pool in counted.get(name, ()) if quota % pool.shape.chips}:
            message = f"expected a quota of {name!r} in whole slices of {chips} chips, got {quota}"
            yield Violation(message, queue.urn)


def _patient(resources: Sequence[Declared]) -> Iterator[Violation]:
    pools = [pool for pool in tpu_pools(resources) if pool.flex_start]
    slow = not all(at(pool.resource.properties, "queuedProvisioning", "enabled") for pool in pools)
    for timeout, seconds in ready_timeouts(resources) if slow else ():
        if seconds < _MIN_PATIENCE_HOURS * 3600:
            yield Violation(f"expected waitForPodsReady.timeout of {_MIN_PATIENCE_HOURS}h or more, got {timeout}", None)


RULES: tuple[Rule, ...] = (
    StackRule(
        id="on-demand-chips",
        severity="high",
        title=f"A stack has at most {_MAX_ON_DEMAND_CHIPS} chips on demand",
        why="They are billed by the second at the full price from `up` to `destroy`, even if no job runs.",
        fix="Choose another capacity, lower the count of the slice group, or grant an exception in the policy file.",
        link="https://cloud.google.com/tpu/pricing",
        check=_few_on_demand,
    ),
    ResourceRule(
        id="slice-offered",
        severity="critical",
        title="Every node pool with TPUs is a slice of the table of TPUs",
        why="GKE refuses other slices after the cluster exists and is billed, and no rule counts the chips of machines"
        " that the table does not have.",
        fix="Choose machine type and topology from the table of TPUs, or add the generation to infra.stack.tpu.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus",
        checks={NODE_POOL: _offered},
    ),
    ResourceRule(
        id="one-source-of-chips",
        severity="high",
        title="The chips of a slice come from one source, which is named",
        why="ANY_RESERVATION, the default, takes chips that another team has reserved, and silently falls back to chips"
        " on demand at the full price. Spot and flex-start never come from a reservation.",
        fix="Choose one capacity for the slice group: on-demand, spot, reservation with a name, flex-start or queued.",
        link="https://cloud.google.com/compute/docs/instances/reservations-consume",
        checks={NODE_POOL: _one_source},
        replaces=("reservation-named",),
    ),
    StackRule(
        id="job-ends",
        severity="medium",
        level="advisory",
        title="A job on demand has an end, and so has a program of your own on any chips",
        why="A job that hangs or does not improve holds its chips until a person looks. The trainer detects its own"
        " hangs; other programs may not.",
        fix="Set job.max_hours or budget.expires_on.",
        link="https://kueue.sigs.k8s.io/docs/concepts/workload/",
        check=_ends,
    ),
    StackRule(
        id="job-saves",
        severity="high",
        title="A job on preemptible chips saves often, in a bucket, and preemptions do not use up its restarts",
        why="Spot and flex-start hosts can go at any time. Work that was not saved is billed and done again, and after"
        " max_restarts such losses the job would fail, with its chips still billed.",
        fix=f"Set job.training.save_every_minutes to {_MAX_LOST_MINUTES} or less, and keep the failurePolicy of"
        " infra.stack.jobset.",
        link=_SPOT,
        check=_of_preemptible_jobs(_saves),
        replaces=("job-restarts-uncounted",),
    ),
    StackRule(
        id="job-grace",
        severity="medium",
        level="advisory",
        title="A job on preemptible chips has time for a last save",
        why="Every preemption loses the work since the last checkpoint, which the job could have saved.",
        fix=f"Set job.grace_seconds to {_MIN_GRACE_SECONDS} or more.",
        link=_SPOT,
        check=_of_preemptible_jobs(_leaves_in_order),
    ),
    ResourceRule(
        id="job-restarts",
        severity="high",
        title="A job restarts after a failure",
        why="Without restarts the first bad host ends the job. Without BlockingRecreate the new pods meet the"
        " coordinator of the previous ones.",
        fix="Set job.max_restarts to 1 or more, and keep the failurePolicy of infra.stack.jobset.",
        link="https://jobset.sigs.k8s.io/docs/concepts/",
        checks={JOB_SET: (_restarts, must_be("spec.failurePolicy.restartStrategy", "BlockingRecreate"))},
    ),
    ResourceRule(
        id="job-kept",
        severity="high",
        title="A job that has ended stays until the program removes it, and is removed before it is replaced",
        why="The next `up` creates a JobSet that deleted itself again, which trains a second time. Two JobSets cannot"
        " have one name, and two runs would write to one folder of checkpoints.",
        fix="Remove ttlSecondsAfterFinished from the JobSet, and set delete_before_replace=True on it.",
        link="https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/",
        checks={JOB_SET: _kept},
        replaces=("job-deleted-first",),
    ),
    StackRule(
        id="job-in-a-queue",
        severity="high",
        title="A job names a queue of its namespace and leaves its start to Kueue",
        why="Without a queue it waits forever in the namespace of a team, and takes the chips of others elsewhere. With"
        " spec.suspend each `up` would suspend a running job, or start one that Kueue holds back.",
        fix="Set job.team to one of the teams, and remove spec.suspend from the JobSet.",
        link="https://kueue.sigs.k8s.io/docs/tasks/run/jobsets/",
        check=_queued,
        replaces=("job-left-to-kueue",),
    ),
    StackRule(
        id="quota-within-chips",
        severity="critical",
        title="Queues give out each chip once",
        why="Kueue would admit a job for which no slice is left. It holds other slices while its pods wait, until Kueue"
        " evicts it after the timeout.",
        fix="Lower the quotas, raise slices.GROUP.count, or give each slice the labels of one flavor.",
        link=_QUOTAS,
        check=_no_more,
        replaces=("slice-counted-once",),
    ),
    StackRule(
        id="chips-given-out",
        severity="medium",
        level="advisory",
        title="Queues give out all chips, in whole slices",
        why="Chips that are in no quota are billed and no job can ever take them, and a job takes whole slices.",
        fix="Make the quotas of the teams multiples of the chips of a slice that add up to all chips.",
        link=_QUOTAS,
        check=_no_less,
        replaces=("quota-in-whole-slices",),
    ),
    StackRule(
        id="flex-start-patience",
        severity="medium",
        level="advisory",
        title="Kueue waits for pods of flex-start as long as chips may take to come",
        why="Pods that wait are the request for the chips, so an eviction sends the job to the end of the line.",
        fix="Remove scheduling.ready_minutes, or raise it.",
        link="https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/",
        check=_patient,
    ),
)

"""What must hold of chips, which are nearly all of the bill, and of the jobs that hold them."""

from collections.abc import Iterator, Sequence

from policy.jobs import pools_of, slice_jobs
from policy.resources import at, of_kind, of_type
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule
from policy.slices import TpuPool, tpu_pools

_MOST_ON_DEMAND_CHIPS = 256
"""A pod of v6e or v5e; of v6e it costs some 500,000 US dollars a month. More wants an exception with a reason."""
_MOST_MINUTES_LOST = 60
"""Between two saves, of work that is billed and done again after a host was taken away."""
_LEAST_GRACE_SECONDS = 30
_STASH = "pulumi:index:Stash"
"""Keeps the day on which a stack expires, or when an environment ends."""
_DEADLINE_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"


def _few_on_demand(resources: Sequence[Declared]) -> Iterator[Broken]:
    bought = sum(pool.shape.chips for pool in tpu_pools(resources) if pool.on_demand)
    if bought > _MOST_ON_DEMAND_CHIPS:
        yield Broken(f"expected at most {_MOST_ON_DEMAND_CHIPS} chips on demand, got {bought}", None)


def _ends(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = tpu_pools(resources)
    on_demand = [pool for pool in pools if pool.on_demand]
    stashes = [at(stash.properties, "input") for stash in of_type(resources, _STASH)]
    expires = any(at(stash, "expires_on") or at(stash, "expires_at") for stash in stashes)
    for job in slice_jobs(resources):
        deadline = at(job.resource.properties, "metadata", "labels", _DEADLINE_LABEL)
        # Only the trainer ends by itself when it hangs.
        endless = pools_of(job, on_demand if job.specification else pools)
        if endless and deadline is None and not expires:
            yield Broken(
                f"expected label {_DEADLINE_LABEL} or a day on which the stack expires, got neither", job.resource.urn
            )


def _saves(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = [pool for pool in tpu_pools(resources) if _taken_away(pool)]
    for job in slice_jobs(resources):
        if not pools_of(job, pools) or (told := job.specification) is None:
            continue
        minutes = at(told, "training", "save_every_minutes")
        if minutes is not None and minutes > _MOST_MINUTES_LOST:
            yield job.broken(f"expected a save every {_MOST_MINUTES_LOST} minutes or more often, got {minutes:g}")
        path = at(told, "storage", "path")
        if path is None or not path.startswith("gs://"):
            yield job.broken(f"expected checkpoints in a bucket, got {path!r}")


def _leaves_in_order(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = [pool for pool in tpu_pools(resources) if _taken_away(pool)]
    for job in slice_jobs(resources):
        seconds = at(job.pod, "terminationGracePeriodSeconds")
        if pools_of(job, pools) and seconds is not None and seconds < _LEAST_GRACE_SECONDS:
            yield job.broken(f"expected {_LEAST_GRACE_SECONDS} seconds or more to save in, got {int(seconds)}")


def _taken_away(pool: TpuPool) -> bool:
    return pool.spot or pool.flex_start


def _goes_on_uncounted(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = [pool for pool in tpu_pools(resources) if _taken_away(pool)]
    on_such = {job.resource.urn for job in slice_jobs(resources) if pools_of(job, pools)}
    for job_set in of_kind(resources, "JobSet"):
        rules = at(job_set.properties, "spec", "failurePolicy", "rules") or ()
        if job_set.urn in on_such and not any(
            at(rule, "action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules
        ):
            yield Broken("expected a failurePolicy rule RestartJobSetAndIgnoreMaxRestarts, got none", job_set.urn)


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "on-demand-chips",
            Group.COST,
            Severity.HIGH,
            Level.MANDATORY,
            f"A stack has at most {_MOST_ON_DEMAND_CHIPS} chips on demand",
            "They are billed by the second at the full price from `up` to `destroy`, whether a job runs or not.",
            "Choose another capacity, lower the slice group's count, or grant an exception in the stack's policy file.",
            "https://cloud.google.com/tpu/pricing",
        ),
        _few_on_demand,
    ),
    StackRule(
        About(
            "job-ends",
            Group.COST,
            Severity.MEDIUM,
            Level.ADVISORY,
            "A job on chips that are bought on demand has an end, and a program of your own on any chips",
            "A job that hangs or never gets better holds its chips until a person looks. The trainer notices a hang"
            " itself; other programs may not.",
            "Set job.max_hours or budget.expires_on.",
            "https://kueue.sigs.k8s.io/docs/concepts/workload/",
        ),
        _ends,
    ),
    StackRule(
        About(
            "job-saves",
            Group.COST,
            Severity.HIGH,
            Level.MANDATORY,
            "A job on chips that are taken away saves often, in a bucket",
            "Spot and flex-start hosts go at any time: what was not saved is billed and done again.",
            f"Set job.training.save_every_minutes to {_MOST_MINUTES_LOST} or less.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms",
        ),
        _saves,
    ),
    StackRule(
        About(
            "job-restarts-uncounted",
            Group.COST,
            Severity.HIGH,
            Level.MANDATORY,
            "The loss of a host that may be taken away does not use up a job's restarts",
            "After max_restarts such losses the job fails for good, with its chips still standing and billed.",
            "Keep the failurePolicy rule of infra.jobset that restarts uncounted when a host is disrupted.",
            "https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/",
        ),
        _goes_on_uncounted,
    ),
    StackRule(
        About(
            "job-grace",
            Group.COST,
            Severity.MEDIUM,
            Level.ADVISORY,
            "A job on chips that are taken away has time for a last save",
            "Work since the last checkpoint is lost at every preemption, though it could have been saved.",
            f"Set job.grace_seconds to {_LEAST_GRACE_SECONDS} or more.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms",
        ),
        _leaves_in_order,
    ),
)

"""What must hold of the chips that queues give out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from policy.kueue import ChipQuota, chip_quotas, flavors
from policy.resources import at
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule
from policy.slices import tpu_pools

_QUOTA = "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/"


def _given_out(resources: Sequence[Declared]) -> Counter[str]:
    given: Counter[str] = Counter()
    for quota in chip_quotas(resources):
        given[quota.flavor] += int(quota.nominal)
    return given


def _standing(resources: Sequence[Declared]) -> dict[str, int]:
    """Chips of each flavor that counts any: those that stand, and those that come on request."""
    pools = tpu_pools(resources)
    return {
        flavor.name: sum(pool.shape.chips for pool in pools if flavor.counts(pool)) for flavor in flavors(resources)
    }


def _no_more(resources: Sequence[Declared]) -> Iterator[Broken]:
    given = _given_out(resources)
    for name, chips in _standing(resources).items():
        if given[name] > chips:
            yield Broken(f"expected quotas of at most {chips} chips of flavor {name!r}, got {given[name]} in all", None)


def _no_less(resources: Sequence[Declared]) -> Iterator[Broken]:
    given = _given_out(resources)
    for name, chips in _standing(resources).items():
        if given and given[name] < chips:
            yield Broken(f"expected quotas of all {chips} chips of flavor {name!r}, got {given[name]} in all", None)


def _whole_slices(resources: Sequence[Declared]) -> Iterator[Broken]:
    sizes = {
        flavor.name: {pool.shape.chips for pool in tpu_pools(resources) if flavor.counts(pool)}
        for flavor in flavors(resources)
    }
    for quota in chip_quotas(resources):
        for chips in sizes.get(quota.flavor, ()):
            if quota.nominal % chips:
                says = f"expected a quota of {quota.flavor!r} in whole slices of {chips} chips, got {quota.nominal:g}"
                yield Broken(says, quota.queue.urn)


def _limits(resources: Sequence[Declared]) -> Iterator[Broken]:
    for quota in chip_quotas(resources):
        yield from (Broken(f"flavor {quota.flavor!r}: {says}", quota.queue.urn) for says in _limit(quota))


def _limit(quota: ChipQuota) -> Iterator[str]:
    limits = {"lendingLimit": quota.lending_limit, "borrowingLimit": quota.borrowing_limit}
    given = [name for name, limit in limits.items() if limit is not None]
    spec = at(quota.queue.properties, "spec")
    if given and not (at(spec, "cohortName") or at(spec, "cohort")):
        yield f"expected a cohort to borrow from and lend to, got {' and '.join(given)} without one"
    if quota.lending_limit is not None and quota.lending_limit > quota.nominal:
        yield f"expected lendingLimit of at most the quota of {quota.nominal:g}, got {quota.lending_limit:g}"


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "quota-within-chips",
            Group.QUEUE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "Queues give out no more chips than there are",
            "Kueue admits a job for which no slice is left: it holds other slices while its pods wait, and is evicted"
            " after the time-out.",
            "Lower the quotas of the teams to count times the chips of a slice, or raise slices.GROUP.count.",
            _QUOTA,
        ),
        _no_more,
    ),
    StackRule(
        About(
            "chips-given-out",
            Group.QUEUE,
            Severity.MEDIUM,
            Level.ADVISORY,
            "Queues give out all chips that there are",
            "Chips in no team's quota are billed, and no job can ever take them.",
            "Raise a team's quota, or lower slices.GROUP.count.",
            _QUOTA,
        ),
        _no_less,
    ),
    StackRule(
        About(
            "quota-in-whole-slices",
            Group.QUEUE,
            Severity.LOW,
            Level.ADVISORY,
            "Quotas are whole slices",
            "A job takes whole slices: the rest of the quota serves nobody but by lending.",
            "Make quotas multiples of the chips of a slice.",
            _QUOTA,
        ),
        _whole_slices,
    ),
    StackRule(
        About(
            "limits-make-sense",
            Group.QUEUE,
            Severity.MEDIUM,
            Level.MANDATORY,
            "Queues lend no more than they have, and only within a cohort",
            "Kueue's webhook refuses the queue during `up`, when cluster and slices stand and are billed.",
            "Lower lending_limit to at most the team's chips.",
            "https://kueue.sigs.k8s.io/docs/concepts/cohort/",
        ),
        _limits,
    ),
)

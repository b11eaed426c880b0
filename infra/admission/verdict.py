"""What a rehearsal finds, as data and in words."""

from collections.abc import Iterable
from typing import Literal

from infra.admission.preemption import Reason
from workloads.spec.base import Spec

Outcome = Literal["admitted", "preempts", "waits", "never", "paused"]
"""`paused`: the job is kept out of its queue; the rest of the verdict says what would become of it otherwise."""

_NAMED = 5
"""Most workloads that a line names."""
_REASONS: dict[Reason, str] = {
    "InClusterQueue": "less urgent in the same queue",
    "InCohortReclamation": "on chips that its queue borrowed",
    "InCohortReclaimWhileBorrowing": "less urgent, on chips that its queue borrowed",
    "InCohortFairSharing": "its queue has the larger share of what is borrowed",
}


class Loan(Spec):
    """Chips of others that the workload needs."""

    flavor: str
    chips: int
    idle: dict[str, int]
    """Chips by queue that lie idle and are lent. Nobody says whose are taken, and others may borrow of them too."""

    def __str__(self) -> str:
        lenders = ", ".join(f"{queue} {chips}" for queue, chips in self.idle.items())
        return f"{self.chips} chips of {self.flavor} (idle and lent: {lenders})"


class Preempted(Spec):
    """A workload that is pushed out, and waits again."""

    workload: str
    queue: str
    priority: int
    chips: int
    reason: Reason

    def __str__(self) -> str:
        return f"{self.workload} ({self.chips} chips, priority {self.priority}, {_REASONS[self.reason]})"


class Holder(Spec):
    """A workload that has chips which this one would need, and cannot be made to go."""

    workload: str
    queue: str
    priority: int
    chips: dict[str, int]
    """By flavor."""

    def __str__(self) -> str:
        return f"{self.workload} ({sum(self.chips.values())} chips, priority {self.priority})"


class Shortage(Spec):
    """Why it does not get one flavor."""

    flavor: str
    needed: int
    available: int
    """Chips that the queue could use now."""
    most: int
    """Chips that it could ever use: its own and all that others lend it."""

    def __str__(self) -> str:
        if self.needed > self.most:
            return f"{self.flavor}: needs {self.needed} chips, and the queue can never use more than {self.most}"
        return f"{self.flavor}: needs {self.needed} chips, {self.available} of at most {self.most} are free"


class Verdict(Spec):
    """What Kueue will do with a workload, as far as quota decides it."""

    workload: str
    queue: str
    priority: int
    chips: int
    outcome: Outcome
    flavors: tuple[str, ...]
    """That it gets, by pod set; when it preempts, those that it makes room in."""
    borrowed: tuple[Loan, ...]
    preempted: tuple[Preempted, ...]
    admitted_in_the_end: bool
    """Whether it runs when all that follows has happened. Others may take what a preemption frees."""
    restless: bool
    """Workloads of these queues push each other out in turn, and Kueue does not come to rest, unless by chance:
    in a cluster those that are pushed out together go one by one."""
    shortages: tuple[Shortage, ...]
    """When it is not admitted at once: flavor by flavor."""
    holders: tuple[Holder, ...]
    """When it waits: who has the chips, the next to end unknown."""
    ahead: tuple[str, ...]
    """When it waits: workloads of its queue that are more urgent or were there before. They do not block
    smaller ones: Kueue admits whatever fits."""
    started_first: tuple[str, ...]
    """Workloads that wait now and are admitted before it, since the plan's quotas let them."""
    stopped: bool
    """Its queue admits nothing, whatever is free."""
    checked_flavors: tuple[str, ...]
    """Flavors of its own whose hosts must come first: it has its quota, and waits on."""
    unknown: tuple[str, ...]
    """What decides beside quota and is not rehearsed."""

    @property
    def lines(self) -> tuple[str, ...]:
        """For people; the first line alone says the outcome."""
        if self.outcome == "paused":
            return (self._headline(),)
        details = [
            *(f"borrows {loan}" for loan in self.borrowed),
            *(f"pushes out {preempted}" for preempted in self.preempted),
            *map(str, self.shortages),
            *_listed("held by", map(str, self.holders)),
            *_listed("ahead in the queue:", self.ahead),
            *_listed("started before it:", self.started_first),
            *(f"has quota of {flavor}, then waits until its hosts have come" for flavor in self.checked_flavors),
            *(["workloads of these queues push each other out in turn, without end"] if self.restless else []),
            *self.unknown,
        ]
        return (self._headline(), *details)

    def _headline(self) -> str:
        job = f"{self.workload} ({self.chips} chips, priority {self.priority})"
        flavors = ", ".join(dict.fromkeys(self.flavors))
        match self.outcome:
            case "admitted":
                if self.checked_flavors:
                    return f"{job} has its quota at once, on {flavors}, and waits for hosts"
                return f"{job} is admitted at once, on {flavors}"
            case "preempts":
                after = f"is admitted on {flavors}" if self.admitted_in_the_end else "others may still be faster"
                return f"{job} pushes out {len(self.preempted)} running, then {after}"
            case "waits":
                return f"{job} waits: queue {self.queue} is {'on hold' if self.stopped else 'short of chips'}"
            case "never":
                return f"{job} is never admitted by queue {self.queue}"
            case "paused":
                return f"{job} is paused and holds no chips"


def _listed(what: str, names: Iterable[str]) -> list[str]:
    """One line of some names, none for none."""
    found = list(names)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [f"{what} {', '.join(found[:_NAMED])}{more}"] if found else []

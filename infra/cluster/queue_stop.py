"""Queues stop, with every job that they have admitted, when `budget.usd_total` of their stack is used up.

`multislice enforce-budget` stops and releases them. It counts what each team has used by Kueue's Workloads, and keeps
the sum in an annotation of the team's queue: records in the checkpoint bucket are written by the team's own pods, and a
Workload disappears with its job.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from infra.cluster.job_state import Workload
from infra.cluster.kubernetes import APPLY_PATCH, ApiServer
from infra.stack import admission_policies
from infra.stack.manifests import Manifest, manifest
from infra.stack.names import BUDGET_ANNOTATION, KUEUE_API_VERSION, QUEUES, SECONDS_PER_HOUR, USED_ANNOTATION

USED_UP = "budget-used-up"
_MANAGER = "multislice-budget"
"""Owner of the fields of a queue that stop it. Another change of the object does not take them over."""


def queue_stop_policies(prefix: str) -> dict[str, Manifest]:
    """Return the policy, and its binding, by which a queue stays stopped until `multislice enforce-budget` releases it.

    `prefix` begins the names of the stack's objects in a cluster that others use too.

    An `up` would open the queue if it changed it, for example after a refresh, because the stack file declares it open.
    """
    group, _, version = KUEUE_API_VERSION.partition("/")
    message = (
        "budget.usd_total of the stack is used up, so this queue stays stopped; raise it in the stack file, then run"
        " multislice enforce-budget"
    )
    stopped = (
        f"!('{BUDGET_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))"
        " || object.spec.?stopPolicy.orValue('None') == 'HoldAndDrain'"
    )
    rule = [(group, "clusterqueues", "UPDATE")]
    return {
        USED_UP: admission_policies.policy(f"{prefix}{USED_UP}", rule, {message: stopped}, versions=[version]),
        f"{USED_UP}-binding": admission_policies.binding(f"{prefix}{USED_UP}"),
    }


@dataclass(frozen=True)
class Seen:
    """What has been counted of a Workload."""

    past_seconds: float
    """Seconds of its former admissions, as Kueue counts them."""
    since: float | None
    """Begin of its admission at that time. `None`: it was not admitted."""
    seconds: float
    """Seconds that were counted of that admission."""

    def seconds_until(self, now: "Seen") -> float:
        """Return the seconds for which it has held its quota since then."""
        if self.since is not None and now.since == self.since:
            return max(0.0, now.seconds - self.seconds)
        # The rest of the former admission is known only if Kueue counts the past.
        return max(0.0, now.past_seconds - self.past_seconds - self.seconds) + now.seconds


_NOTHING = Seen(0.0, None, 0.0)


@dataclass(frozen=True)
class Usage:
    """What the jobs of a team have used."""

    usd: float = 0.0
    seen: Mapping[str, Seen] = field(default_factory=dict[str, Seen])
    """What has been counted of the Workloads that exist, by their uid. What others used stays in `usd`."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the usage in an annotation, which is empty before the first count.

        Raise ValueError or TypeError if the text is not one that `text` returns.
        """
        usd, seen = json.loads(text) if text else (0.0, {})
        return cls(float(usd), {uid: Seen(*map(_number, each)) for uid, each in seen.items()})

    @property
    def text(self) -> str:
        """Return the annotation."""
        return json.dumps([self.usd, {uid: astuple(each) for uid, each in self.seen.items()}], separators=(",", ":"))

    def counted(self, workloads: Iterable[Workload], usd_per_hour: Callable[[Workload], float], at: float) -> Self:
        """Return the usage at the time `at`, with the `workloads` of the team that exist then."""
        usd, seen = self.usd, dict[str, Seen]()
        for each in workloads:
            before = self.seen.get(each.uid, _NOTHING)
            since, seconds = each.admission(at) or (None, 0.0)
            seen[each.uid] = now = Seen(each.past_seconds, since, seconds)
            if more := before.seconds_until(now):
                usd += usd_per_hour(each) * more / SECONDS_PER_HOUR
        return type(self)(usd, seen)


def _number(value: object) -> Any:
    return None if value is None else float(str(value))


def keep_usage(api: ApiServer, queue: str, usage: Usage, over: str) -> None:
    """Record what a team has used in its queue. With a reason in `over`, the queue stops: its jobs save and free their
    chips, and no job starts. Without one it is released, but stays stopped if the stack file declares it so."""
    spec: Manifest = {"stopPolicy": "HoldAndDrain"} if over else {}
    annotations = {USED_ANNOTATION: usage.text, **({BUDGET_ANNOTATION: over} if over else {})}
    applied = manifest(KUEUE_API_VERSION, "ClusterQueue", queue, annotations=annotations, spec=spec)
    # These are the only fields that this program owns in the queue.
    api.request("PATCH", f"{QUEUES}/{queue}", applied, {"fieldManager": _MANAGER, "force": "true"}, APPLY_PATCH)

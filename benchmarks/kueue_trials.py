"""Records decisions of real Kueue, with many cohorts at the same time in one control plane:
`python -m benchmarks.kueue_trials [TRIAL ...]`.

In a trial, Kueue fills the queues, and the newcomer is submitted. Workloads are created without jobs, so this module
returns the quota of evicted workloads, as a job would. The command runs the trials of the record again, and those that
are named, in a sandbox of their own, and writes the decisions to the file that the tests replay.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import batched, zip_longest
from pathlib import Path

from benchmarks.kueue_decisions import (
    NAMESPACE,
    RECORD,
    TRIAL_LABEL,
    Decision,
    Seen,
    Trial,
    draw_named,
    names,
    situation_of,
    start_trial,
    write,
)
from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.stack.manifests import condition, conditions, is_true
from infra.stack.names import FLAVORS, KUEUE_API_VERSION, LOCAL_QUEUES, QUEUES, TPU_RESOURCE, WORKLOADS
from tests.chain.shared import held
from tests.chain.stack import ignore, sandbox_in, wait_until

_API = f"/apis/{KUEUE_API_VERSION}"
PATHS = {
    "Workload": WORKLOADS.format(NAMESPACE),
    "LocalQueue": LOCAL_QUEUES.format(NAMESPACE),
    "ClusterQueue": QUEUES,
    "Cohort": f"{_API}/cohorts",
    "ResourceFlavor": FLAVORS,
}
"""Paths of the kinds of objects of a trial. Kueue releases each kind when the one before it has been deleted."""
_POLL_SECONDS = 0.4
_CALM_SECONDS = 3.0
"""Time without changes after which a trial has settled. Kueue retries workloads within a second of any change."""
_MAX_EVICTIONS = 4
"""Largest number of evictions of a workload. After that it stays stopped, because it could keep Kueue busy forever."""
TIMEOUT_SECONDS = 120.0
_AT_A_TIME = 40
"""Number of trials that run at the same time. Each has its own cohort."""


@dataclass
class Watched:
    """Workloads of all trials, and which of them preempted others since the last read."""

    api: ApiServer
    trial_of: Callable[[Json], str]
    """Returns the name of the trial of a workload."""
    most_evictions: int = _MAX_EVICTIONS
    pushed: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Keys and reasons of the workloads that a workload preempted first, by its UID."""
    preempts_in_circles: set[str] = field(default_factory=set[str])
    """Names of trials that did not settle, because workloads preempt each other in turn."""
    _known: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Times of known evictions, by workload."""
    _final: set[str] = field(default_factory=set[str])

    def settle(self, seconds: float) -> dict[str, Json]:
        """Wait until nothing changes, for at most this time. Return the workloads by key."""
        deadline = time.monotonic() + seconds
        states: dict[str, object] = {}
        changed: dict[str, tuple[float, str]] = {}
        while True:
            found = {key(item): item for item in self.api.request("GET", f"{_API}/workloads")["items"]}
            leaving = self._evictions(found.values())
            now = time.monotonic()
            for name, item in found.items():
                reasons = [(each.kind, each.holds, each.reason) for each in conditions(item)]
                if states.get(name) != (state := (item.get("status", {}).get("admission"), reasons)):
                    states[name], changed[name] = state, (now, self.trial_of(item))
            moving = leaving | {trial for at, trial in changed.values() if now - at < _CALM_SECONDS}
            if not moving or now > deadline:
                self.preempts_in_circles |= moving
                return found
            time.sleep(_POLL_SECONDS)

    def _evictions(self, found: Iterable[Json]) -> set[str]:
        """Stop evicted workloads without jobs, after all that are evicted together have been marked. Return the trials
        of those that still have quota."""
        evicted = [item for item in found if is_true(item, "Evicted")]
        fresh = {_by(item) for item in evicted if self._note(item)}
        leaving = [item for item in evicted if is_true(item, "QuotaReserved")]
        for item in leaving:
            if len(self._known[key(item)]) > self.most_evictions:
                self.preempts_in_circles.add(self.trial_of(item))
            elif _by(item) not in fresh:
                self._final.add(_by(item))
                if "ownerReferences" not in item["metadata"]:
                    self._let_go(item)
        return set(map(self.trial_of, leaving)) - self.preempts_in_circles

    def _note(self, item: Json) -> bool:
        """Record which workload preempted this one, and why. Return whether the eviction is new."""
        sights, at = self._known.setdefault(key(item), set()), condition(item, "Evicted")["lastTransitionTime"]
        if at in sights:
            return False
        sights.add(at)
        if is_true(item, "Preempted") and _by(item) not in self._final:
            self.pushed.setdefault(_by(item), {})[key(item)] = condition(item, "Preempted")["reason"]
        return True

    def _let_go(self, item: Json) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = {"status": "False", "reason": "Pending", "message": "stopped", "lastTransitionTime": now}
        found = [
            {**each, **ended} if each["type"] in ("QuotaReserved", "Admitted") else each
            for each in item["status"]["conditions"]
        ]
        version = {"resourceVersion": item["metadata"]["resourceVersion"]}
        change = {"metadata": version, "status": {"admission": None, "conditions": found}}
        try:
            self.api.patch(f"{WORKLOADS.format(item['metadata']['namespace'])}/{_name(item)}/status", change)
        except ApiError as error:
            if error.status != 409:  # Kueue was faster. The next read tries again.
                raise


def carry_out(api: ApiServer, trials: Sequence[Trial]) -> list[Decision]:
    """Run the trials, and repeat those once in which Kueue and the simulation disagree.

    On a busy machine, the first read may be too early, and evicted workloads stop so late that Kueue preempts others in
    the meantime.
    """
    decisions = _carry_out(api, trials)
    doubtful = [trial for trial, decision in zip(trials, decisions, strict=True) if not decision.agrees]
    again = {decision.name: decision for decision in _carry_out(api, doubtful)} if doubtful else {}
    return [again.get(decision.name, decision) for decision in decisions]


def _carry_out(api: ApiServer, trials: Sequence[Trial]) -> list[Decision]:
    """Run the trials at the same time and delete their objects."""
    watched, older = Watched(api, trial_of), [trial.newcomer for trial in trials if trial.older]
    with queues_of(api, trials):
        create(api, [{**newcomer, "spec": {**newcomer["spec"], "active": False}} for newcomer in older])
        time.sleep(1)  # Timestamps have whole seconds.
        # Create one workload of each trial at a time, so that Kueue processes them in this order.
        turns = zip_longest(*(trial.workloads for trial in trials))
        create(api, [workload for turn in turns for workload in turn if workload])
        before = watched.settle(TIMEOUT_SECONDS)
        if stopped := [trial.stopped for trial in trials if trial.stopped]:
            for queue in stopped:
                api.patch(f"{QUEUES}/{queue}", {"spec": {"stopPolicy": "Hold"}})
            before = watched.settle(TIMEOUT_SECONDS)
        if ended := [trial.ended for trial in trials if trial.ended]:
            for workload in ended:
                api.delete(f"{PATHS['Workload']}/{workload}", {})
            watched.settle(TIMEOUT_SECONDS)
        for newcomer in older:
            api.patch(f"{PATHS['Workload']}/{_name(newcomer)}", {"spec": {"active": True}})
        create(api, [trial.newcomer for trial in trials if not trial.older])
        after = watched.settle(TIMEOUT_SECONDS)
    return [_decision(trial, before, after, watched) for trial in trials]


@contextmanager
def queues_of(api: ApiServer, trials: Iterable[Trial]) -> Generator[None]:
    """Create the queues of trials, and delete all objects of trials when the block ends."""
    paths = [f"{path}?labelSelector={TRIAL_LABEL}" for path in PATHS.values()]
    try:
        create(api, [manifest for trial in trials for manifest in trial.fixtures])
        yield
    finally:
        for path in paths:
            api.delete(path, {})
        left = "Kueue did not release the objects of the trials"
        wait_until(lambda: not any(api.request("GET", path)["items"] for path in paths), lambda: left)


def create(api: ApiServer, objects: Iterable[Json]) -> None:
    """Create objects of trials one after another."""
    for manifest in objects:
        api.request("POST", PATHS[manifest["kind"]], manifest)


def _decision(trial: Trial, before: dict[str, Json], after: dict[str, Json], watched: Watched) -> Decision:
    if trial.name in watched.preempts_in_circles:
        # The trial has no final state, so record its begin.
        situation, newcomer = start_trial(trial)
        seen = Seen(outcome="preempts_in_circles")
    else:
        found = after[key(trial.newcomer)]
        existing = [before[key(manifest)] for manifest in trial.workloads if _name(manifest) != trial.ended]
        situation, newcomer = situation_of(trial, [*existing, found], trial.stopped)
        seen = see(found, watched.pushed.get(found["metadata"]["uid"], {}))
    started = newcomer.model_copy(update={"admission": None})
    return Decision(name=trial.name, situation=situation, newcomer=started, seen=seen)


def see(item: Json, pushed: Mapping[str, str]) -> Seen:
    """Return the result of a workload that preempted those of `pushed`."""
    admitted = is_true(item, "QuotaReserved")
    assignments = item["status"]["admission"]["podSetAssignments"] if admitted else []
    flavors = tuple(each["flavors"][TPU_RESOURCE] for each in assignments if TPU_RESOURCE in each.get("flavors", {}))
    message = condition(item, "QuotaReserved").get("message", "")
    if pushed or admitted:
        outcome = "preempts" if pushed else "admitted"
    elif len(item["spec"]["podSets"]) > 1 or "assign flavors" not in message:
        outcome = "unsaid"
    else:
        outcome = "waits" if "insufficient unused quota" in message else "never"
    return Seen(outcome=outcome, flavors=flavors, preempted=dict(sorted(pushed.items())))


def _name(manifest: Json) -> str:
    return manifest["metadata"]["name"]


def key(workload: Json) -> str:
    """Return the namespace and the name of a workload."""
    return f"{workload['metadata']['namespace']}/{_name(workload)}"


def trial_of(workload: Json) -> str:
    """Return the name of the trial of a workload."""
    return _name(workload).rpartition("-")[0]


def _by(item: Json) -> str:
    """Return the UID of the workload that preempted this one."""
    message = condition(item, "Preempted")["message"] if is_true(item, "Preempted") else ""
    return message.partition("(UID: ")[2].partition(",")[0]


@contextmanager
def control_plane(*, fair_sharing: bool) -> Generator[ApiServer]:
    """Start a sandbox with Kueue for a while."""
    with tempfile.TemporaryDirectory() as folder, sandbox_in(Path(folder)) as sandbox:
        sandbox.engine_on({**held(), "scheduling": {"fair_sharing": fair_sharing}}).up(ignore)
        yield sandbox.api


def main() -> None:
    """Record Kueue's decisions, and print those that the simulation does not make."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kueue_trials", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TRIAL", help="trials to add, such as t7 or c7")
    more: list[str] = parser.parse_args().names
    found: list[Decision] = []
    for fair in (False, True):
        named = dict.fromkeys([*names(RECORD, fair_sharing=fair), *more])
        with control_plane(fair_sharing=fair) as api:
            for some in batched([draw_named(name, fair_sharing=fair) for name in named], _AT_A_TIME, strict=False):
                found += carry_out(api, some)
                print(f"{len(found)} decisions", flush=True)
    kept: list[tuple[str, Decision]] = []
    for decision in found:
        if not decision.agrees:
            print(decision)
        # If workloads preempt each other in turn, the result for the newcomer may be random.
        in_circles = decision.verdict.preempts_in_circles or decision.seen.outcome == "preempts_in_circles"
        if decision.agrees or not in_circles:
            kept.append((decision.name, decision))
    write(RECORD, kept)


if __name__ == "__main__":
    main()

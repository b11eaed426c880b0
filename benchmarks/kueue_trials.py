"""Records decisions of real Kueue, with many cohorts at the same time in one control plane:
`python -m benchmarks.kueue_trials [TRIAL ...]`.

In a trial, Kueue fills the queues, and the newcomer is submitted. Workloads are created without jobs, so this module
returns the quota of evicted workloads, as a job would. The command runs the trials of the record again, and those that
are named, in a sandbox of their own, and writes the decisions to the file that the tests replay.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.kueue_decisions import (
    NAMESPACE,
    OF_TRIALS,
    RECORD,
    Decision,
    Manifest,
    Seen,
    Trial,
    draw_named,
    kueue,
    names,
    situation_of,
    start_trial,
    write,
)
from infra.cluster.kubernetes import ApiError, ApiServer
from infra.stack.manifests import condition, conditions, is_true
from infra.stack.names import TPU_RESOURCE
from sandbox import daemon, programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.site import administrator
from sandbox.site import create as create_site

_API = "/apis/kueue.x-k8s.io/v1beta2"
THREADS = 8
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
    trial_of: Callable[[Manifest], str]
    """Returns the name of the trial of a workload."""
    most_evictions: int = _MAX_EVICTIONS
    pushed: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Keys and reasons of the workloads that a workload preempted first, by its UID."""
    preempts_in_circles: set[str] = field(default_factory=set[str])
    """Names of trials that did not settle, because workloads preempt each other in turn."""
    _known: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Times of known evictions, by workload."""
    _final: set[str] = field(default_factory=set[str])

    def settle(self, seconds: float) -> dict[str, Manifest]:
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

    def _evictions(self, found: Iterable[Manifest]) -> set[str]:
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

    def _note(self, item: Manifest) -> bool:
        """Record which workload preempted this one, and why. Return whether the eviction is new."""
        sights, at = self._known.setdefault(key(item), set()), condition(item, "Evicted")["lastTransitionTime"]
        if at in sights:
            return False
        sights.add(at)
        if is_true(item, "Preempted") and _by(item) not in self._final:
            self.pushed.setdefault(_by(item), {})[key(item)] = condition(item, "Preempted")["reason"]
        return True

    def _let_go(self, item: Manifest) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        others = [each for each in item["status"]["conditions"] if each["type"] not in ("QuotaReserved", "Admitted")]
        ended = {"status": "False", "reason": "Pending", "message": "stopped", "lastTransitionTime": now}
        status = {
            "admission": None,
            "conditions": [*others, *({"type": name, **ended} for name in ("QuotaReserved", "Admitted"))],
        }
        version = {"resourceVersion": item["metadata"]["resourceVersion"]}
        try:
            self.api.patch(
                f"{_API}/namespaces/{item['metadata']['namespace']}/workloads/{_name(item)}/status",
                {"metadata": version, "status": status},
            )
        except ApiError as error:
            if error.status != 409:  # Kueue was faster. The next read tries again.
                raise


def carry_out(api: ApiServer, trials: list[Trial]) -> list[Decision]:
    """Run the trials, and repeat those once in which Kueue and the simulation disagree.

    On a busy machine, the first read may be too early, and evicted workloads stop so late that Kueue preempts others in
    the meantime.
    """
    decisions = _carry_out(api, trials)
    doubtful = [trial for trial, decision in zip(trials, decisions, strict=True) if not decision.agrees]
    again = {decision.name: decision for decision in _carry_out(api, doubtful)} if doubtful else {}
    return [again.get(decision.name, decision) for decision in decisions]


def _carry_out(api: ApiServer, trials: list[Trial]) -> list[Decision]:
    """Run the trials at the same time and delete their objects."""
    make_namespace(api)
    with ThreadPoolExecutor(THREADS) as pool:

        def each(act: Callable[[Trial], None]) -> None:
            list(pool.map(act, trials))

        try:
            each(lambda trial: prepare(api, trial))
            for turn in range(max(len(trial.workloads) for trial in trials)):
                # Create one workload of each trial at a time, so that Kueue processes them in this order.
                each(lambda trial, turn=turn: create(api, trial.workloads[turn : turn + 1]))
            watched = Watched(api, trial_of)
            before = watched.settle(TIMEOUT_SECONDS)
            if stopped := [trial.stopped for trial in trials if trial.stopped]:
                hold = {"spec": {"stopPolicy": "Hold"}}
                list(pool.map(lambda queue: api.patch(_path("clusterqueues", queue), hold), stopped))
                before = watched.settle(TIMEOUT_SECONDS)
            if ended := [trial.ended for trial in trials if trial.ended]:
                list(pool.map(lambda workload: api.delete(workload_path(workload), {}), ended))
                watched.settle(TIMEOUT_SECONDS)
            each(lambda trial: _submit(api, trial))
            after = watched.settle(TIMEOUT_SECONDS)
        finally:
            remove(api, pool)
    return [_decision(trial, before, after, watched) for trial in trials]


def make_namespace(api: ApiServer) -> None:
    """Create the namespace of all trials if there is none."""
    if api.find(f"/api/v1/namespaces/{NAMESPACE}") is None:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def prepare(api: ApiServer, trial: Trial) -> None:
    """Create the queues of a trial."""
    for kind in ("flavors", "cohorts", "queues", "local_queues"):
        create(api, getattr(trial, kind))
    if trial.older:
        inactive = {**trial.newcomer, "spec": {**trial.newcomer["spec"], "active": False}}
        create(api, [inactive])
        time.sleep(1)  # Timestamps have whole seconds.


def _submit(api: ApiServer, trial: Trial) -> None:
    if trial.older:
        api.patch(workload_path(_name(trial.newcomer)), {"spec": {"active": True}})
    else:
        create(api, [trial.newcomer])


def remove(api: ApiServer, pool: Executor) -> None:
    """Delete all objects of the trials. Kueue releases each kind when the one before it has been deleted."""
    kinds = ("workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors")
    for plural in kinds:
        list(pool.map(lambda item, plural=plural: api.delete(_path(plural, _name(item)), {}), _of_trials(api, plural)))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(_of_trials(api, plural) for plural in kinds):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Kueue did not release the objects of the trials within {TIMEOUT_SECONDS} s")
        time.sleep(_POLL_SECONDS)


def _of_trials(api: ApiServer, plural: str) -> list[Manifest]:
    return api.request("GET", _path(plural), None, OF_TRIALS)["items"]


def create(api: ApiServer, objects: Iterable[Manifest]) -> None:
    """Create objects one after another."""
    for manifest in objects:
        api.request("POST", _path(f"{manifest['kind'].lower()}s"), manifest)


def workload_path(name: str) -> str:
    """Return the path of a workload."""
    return _path("workloads", name)


def _path(plural: str, *name: str) -> str:
    namespace = ("namespaces", NAMESPACE) if plural in ("workloads", "localqueues") else ()
    return "/".join((_API, *namespace, plural, *name))


def _decision(trial: Trial, before: dict[str, Manifest], after: dict[str, Manifest], watched: Watched) -> Decision:
    if trial.name in watched.preempts_in_circles:
        # The trial has no final state, so record its begin.
        situation, newcomer = start_trial(trial)
        seen = Seen(outcome="preempts_in_circles")
    else:
        found = after[key(trial.newcomer)]
        existing = [before[key(manifest)] for manifest in trial.workloads if _name(manifest) != trial.ended]
        situation, newcomer = situation_of(trial, [*existing, found], trial.stopped)
        seen = see(found, watched.pushed.get(newcomer.uid, {}))
    started = newcomer.model_copy(update={"admission": None})
    return Decision(name=trial.name, situation=situation, newcomer=started, seen=seen)


def see(item: Manifest, pushed: Mapping[str, str]) -> Seen:
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


def _name(manifest: Manifest) -> str:
    return manifest["metadata"]["name"]


def key(workload: Manifest) -> str:
    """Return the namespace and the name of a workload."""
    return f"{workload['metadata']['namespace']}/{_name(workload)}"


def trial_of(workload: Manifest) -> str:
    """Return the name of the trial of a workload."""
    return _name(workload).rpartition("-")[0]


def _by(item: Manifest) -> str:
    """Return the UID of the workload that preempted this one."""
    message = condition(item, "Preempted")["message"] if is_true(item, "Preempted") else ""
    return message.partition("(UID: ")[2].partition(",")[0]


def trials(named: Mapping[bool, Sequence[str]]) -> Iterator[list[Decision]]:
    """Run the named trials in batches, without and with fair sharing, in a sandbox of their own."""
    for fair_sharing, wanted in named.items():
        with control_plane(fair_sharing=fair_sharing) as api:
            some = [draw_named(name, fair_sharing=fair_sharing) for name in wanted]
            for first in range(0, len(some), _AT_A_TIME):
                yield carry_out(api, some[first : first + _AT_A_TIME])


@contextmanager
def control_plane(*, fair_sharing: bool) -> Generator[ApiServer]:
    """Start a sandbox with Kueue for a while."""
    with tempfile.TemporaryDirectory() as folder:
        site, found = create_site(Path(folder) / "site"), programs.found()
        daemon.start(site, lambda phase: None)
        try:
            Engine(site, found, _stack_file(Path(folder), fair_sharing=fair_sharing)).up(lambda event: None)
            yield administrator(site)
        finally:
            daemon.stop(site)


def _stack_file(folder: Path, *, fair_sharing: bool) -> Path:
    """Write the stack file of the local stack with its own job on hold, and return the path."""
    content = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())
    content["config"]["tpu-multislice:teams"]["research"]["admission"] = "hold"
    content["config"]["tpu-multislice:scheduling"] = {"fair_sharing": fair_sharing}
    path = folder / "Pulumi.local.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def main() -> None:
    """Record Kueue's decisions, and print those that the simulation does not make."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kueue_trials", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TRIAL", help="trials to add, such as t7 or c7")
    more: list[str] = parser.parse_args().names
    named = {fair: [*dict.fromkeys([*names(RECORD, fair_sharing=fair), *more])] for fair in (False, True)}
    found: list[Decision] = []
    for decisions in trials(named):
        for decision in decisions:
            if not decision.agrees:
                print(decision, flush=True)
            # If workloads preempt each other in turn, the result for the newcomer may be random.
            in_circles = decision.verdict.preempts_in_circles or decision.seen.outcome == "preempts_in_circles"
            if decision.agrees or not in_circles:
                found.append(decision)
        print(f"{len(found)} decisions", flush=True)
    write(RECORD, kueue(), found)


if __name__ == "__main__":
    main()

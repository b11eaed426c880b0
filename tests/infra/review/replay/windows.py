"""Records windows of events on real Kueue: `python -m tests.infra.review.replay.windows [WINDOW ...]`.

In a window, workloads are submitted and end one after another, as in a replayed trace but without its times. After each
event Kueue settles, and the holders of chips are recorded. `agreement` is the share of events after which a simulation
of the whole window has the same holders. The command records the windows of the record again, and those that are named.
"""

import argparse
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

from benchmarks.kueue_decisions import NAMESPACE, Trial, draw_named, draw_workload, plain, write
from benchmarks.kueue_trials import PATHS, TIMEOUT_SECONDS, Watched, control_plane, create, queues_of, trial_of
from infra.cluster.kubernetes import ApiServer, Json
from infra.review.admission import manifests
from infra.review.admission.scheduler import Scheduler
from infra.review.admission.situation import Queue, Situation, Workload
from workloads.spec.base import Spec

RECORD = Path(__file__).parent / "windows.jsonl"
"""File of the windows that the tests replay."""
EVENTS = 50
_SHARE_OF_ENDS = 0.4
_MOST_EVICTIONS = EVENTS
_MOST_STEPS = 500

type Holders = dict[str, tuple[str, ...]]
"""Flavors of the workloads with chips, by name."""


class Turn(Spec):
    """A workload that was submitted or ended, and the holders afterwards."""

    submitted: Workload | None
    ended: str | None
    holders: Holders


class Window(Spec):
    """Events of one cohort, from an empty one on."""

    name: str
    queues: tuple[Queue, ...]
    turns: tuple[Turn, ...]

    def simulate(self) -> list[Holders]:
        """Return the holders after each event by simulation, which knows nothing of those that were recorded."""
        scheduler = Scheduler(Situation(queues=self.queues, workloads=(), fair_sharing=False))
        found: list[Holders] = []
        for turn in self.turns:
            if turn.submitted:
                scheduler.submit(turn.submitted)
            for queue in self.queues:
                if turn.ended in scheduler.snapshot.running(queue.name):
                    scheduler.finish(queue.name, str(turn.ended))
            # Workloads that preempt each other in turn would never end.
            deque(islice(scheduler.run(), _MOST_STEPS), maxlen=0)
            running = [each for queue in self.queues for each in scheduler.snapshot.running(queue.name).values()]
            found.append({each.name: each.admission.flavors for each in running if each.admission})
        return found

    def differing(self) -> list[int]:
        """Return the numbers of the events after which the simulation has other holders than Kueue, whatever their
        flavors."""
        pairs = zip(self.simulate(), self.turns, strict=True)
        return [number for number, (simulated, turn) in enumerate(pairs) if simulated.keys() != turn.holders.keys()]


def agreement(windows: Iterable[Window]) -> float:
    """Return the share of events after which the simulation has the same holders as Kueue."""
    found = list(windows)
    return 1 - sum(len(window.differing()) for window in found) / sum(len(window.turns) for window in found)


@dataclass
class _Progress:
    """A window while it is recorded."""

    trial: Trial
    random: Random
    holders: Holders = field(default_factory=dict[str, tuple[str, ...]])
    submitted: list[Json] = field(default_factory=list[Json])
    turns: list[Turn] = field(default_factory=list[Turn])
    last: tuple[str | None, str | None] = (None, None)
    """Name of the workload that was just submitted, and of the one that just ended."""

    def act(self, api: ApiServer) -> None:
        """Submit a workload, or end one that has chips."""
        if self.holders and self.random.random() < _SHARE_OF_ENDS:
            ended = self.random.choice(sorted(self.holders))
            api.delete(f"{PATHS['Workload']}/{ended}", {})
            self.last = (None, ended)
            return
        name = f"{self.trial.name}-w{len(self.submitted)}"
        queues = [each["metadata"]["name"] for each in self.trial.queues]
        flavors = [each["metadata"]["name"] for each in self.trial.flavors]
        self.submitted.append(draw_workload(self.random, name, self.random.choice(queues), flavors))
        create(api, self.submitted[-1:])
        self.last = (name, None)

    def note(self, found: Mapping[str, Json], queues: Sequence[Queue]) -> None:
        """Record the holders after the last event."""
        submitted, ended = self.last
        local = {(NAMESPACE, queue.name): queue.name for queue in queues}
        own = [item for item in found.values() if trial_of(item) == self.trial.name]
        workloads = {each.name: each for each in manifests.workloads(own, local, self.trial.flavors)}
        admitted = {name: each.admission for name, each in workloads.items() if each.admission}
        self.holders = {name.removeprefix(f"{NAMESPACE}/"): each.flavors for name, each in admitted.items()}
        new = workloads[f"{NAMESPACE}/{submitted}"] if submitted else None
        self.turns.append(
            Turn(
                submitted=new and new.model_copy(update={"name": submitted, "admission": None}),
                ended=ended,
                holders=dict(sorted(self.holders.items())),
            )
        )


def carry_out(api: ApiServer, names: Sequence[str], events: int = EVENTS) -> list[Window]:
    """Record windows at the same time, each in a cohort of its own. A window ends early if it does not settle."""
    trials = [draw_named(name, fair_sharing=False) for name in names]
    windows = [_Progress(trial, Random(f"window {trial.name}")) for trial in trials]
    queues = {trial.name: tuple(map(manifests.queue, trial.queues)) for trial in trials}
    with queues_of(api, trials):
        watched = Watched(api, trial_of, most_evictions=_MOST_EVICTIONS)
        for _ in range(events):
            calm = [window for window in windows if window.trial.name not in watched.preempts_in_circles]
            for window in calm:
                window.act(api)
            found = watched.settle(TIMEOUT_SECONDS)
            for window in calm:
                if window.trial.name not in watched.preempts_in_circles:
                    window.note(found, queues[window.trial.name])
            print(f"{min(len(window.turns) for window in windows)} to {len(windows[0].turns)} events", flush=True)
    return [
        Window(name=window.trial.name, queues=queues[window.trial.name], turns=_plain(window.turns))
        for window in windows
    ]


def _plain(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return the turns without values that differ between recordings for no reason."""
    submitted = iter(plain([turn.submitted for turn in turns if turn.submitted]))
    return tuple(turn.model_copy(update={"submitted": turn.submitted and next(submitted)}) for turn in turns)


def read(path: Path) -> tuple[str, list[Window]]:
    """Return the version of Kueue that was recorded, and the windows."""
    head, *lines = path.read_text().splitlines()
    return json.loads(head)["kueue"], [Window.model_validate_json(line) for line in lines]


def main() -> None:
    """Record the windows, and print the events after which the simulation differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.review.replay.windows", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WINDOW", help="windows to add, such as t7 or c7")
    more: list[str] = parser.parse_args().names
    known = [window.name for window in read(RECORD)[1]] if RECORD.exists() else []
    with control_plane(fair_sharing=False) as api:
        windows = carry_out(api, [*dict.fromkeys([*known, *more])])
    write(RECORD, [(window.name, window) for window in windows])
    for window in windows:
        if differing := window.differing():
            print(f"window {window.name}: other holders after the events {differing}")
    print(f"{sum(len(window.turns) for window in windows)} events, {agreement(windows):.1%} with the same holders")


if __name__ == "__main__":
    main()

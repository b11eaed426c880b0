"""What a group of slices does after a step, as its leader decides it from what all hosts say."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from workloads.group.protocol import OPEN, Value
from workloads.group.view import HostId
from workloads.spec import TrainingSpec
from workloads.training.fingerprint import Fingerprints

type Kind = Literal["step", "moments", "compare", "evaluate", "end"]


class AfterStep(TypedDict):
    """The decision of a step's round."""

    open: bool
    leave: list[int]
    """Slices that were told to stop, while the others train on."""
    stop: bool
    """Whether all slices stop, because too few would remain."""
    save: bool
    compare: bool
    evaluate: bool
    present: list[int]
    """Slices that finished the step, which are dealt the parts of the next window (`outer_step`)."""


class Compared(TypedDict):
    """The decision of a comparison of fingerprints."""

    open: bool
    wrong: list[int]
    """Slices whose state differs from that of most slices."""
    what: str


class GroupSchedule:
    """Decides rounds on the leader. Every first host has one, because any of them may come to lead."""

    def __init__(self, schedule: TrainingSpec, quorum: int):
        self._schedule, self._quorum = schedule, quorum
        self._saved = time.monotonic()

    def note_save(self) -> None:
        self._saved = time.monotonic()

    def decide(self, values: Mapping[HostId, Value]) -> Value:
        """Return the decision of a round from what all hosts of the view said."""
        first = next(iter(values.values()))
        if first["kind"] == "step":
            return dict(self._after_step(int(first["since"]), int(first["step"]), values))
        if first["kind"] == "compare":
            return dict(self._compared(values))
        # A comparison follows a transfer of moments.
        return {OPEN: first["kind"] != "moments"}

    def _after_step(self, since: int, step: int, values: Mapping[HostId, Value]) -> AfterStep:
        """Return what follows the steps after step `since` up to `step`."""
        schedule = self._schedule
        told = {host.slice for host, value in values.items() if value["sigterm"]}
        stop = bool(told) and len({host.slice for host in values} - told) < self._quorum
        ends = step == schedule.steps
        late = time.monotonic() - self._saved > 60 * schedule.save_every_minutes
        save = stop or ends or late or passed(schedule.save_every_steps, since, step)
        compare = save or passed(schedule.compare_slices_every_steps, since, step)
        evaluate = not ends and not stop and passed(schedule.evaluate_every_steps, since, step)
        return AfterStep(
            open=not (compare or evaluate),
            leave=[] if stop else sorted(told),
            stop=stop,
            save=save,
            compare=compare,
            evaluate=evaluate,
            present=sorted({host.slice for host in values}),
        )

    def _compared(self, values: Mapping[HostId, Value]) -> Compared:
        found: dict[int, Any] = {host.slice: value["fingerprints"] for host, value in values.items() if not host.worker}
        counts = Counter(tuple(each.items()) for each in found.values())
        expected, count = counts.most_common(1)[0]
        wrong = [one for one, each in found.items() if tuple(each.items()) != expected]
        if wrong and 2 * count <= len(found):
            wrong = list(found)
        names = [name for one in wrong for name in _differing(dict(expected), found[one])]
        again = bool(next(iter(values.values()))["evaluates"])
        return Compared(open=not again, wrong=sorted(wrong), what=", ".join(dict.fromkeys(names)))


def passed(every: int, since: int, step: int) -> bool:
    """Return whether there is a multiple of `every` after `since` and up to `step`."""
    return step // every > since // every


def _differing(expected: Fingerprints, found: Fingerprints) -> list[str]:
    return [name for name in expected if found.get(name) != expected[name]]

"""Faults of a job whose slices restart one by one, while the others train on."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from chaos.membership import Departure
from chaos.sabotage import Deed, Sabotage, add_sabotages
from chaos.target import PAIRS, SINGLES, Fault, Target, comes_with_the_job
from chaos.verdict import Expected

STEPS, SAVE_EVERY = 160, 40
_SLICES = 3
_AT_STEP = 25
"""Step before the first save, so that no checkpoint exists that a slice could read."""
_TOGETHER_SECONDS = 240
"""Time limit for what a strike waits for; a slice takes a minute to return on a machine that does other things."""
_SILENT_SECONDS = 5.5
"""Seconds until a silent host is noticed: `workloads.group.leading.SILENT_SECONDS`, and a look twice a second."""
_STOPPED_SECONDS = 9.0
_PACE_SECONDS = 0.4
_HELD_SECONDS = 4.0
_HOSTS = tuple(f"slice-{number}-{host}" for number in range(_SLICES) for host in range(2))

_UPDATE = "workloads.training.slice_program:SliceProgram.update"
_GIVE = "workloads.training.state_transfer:StateTransfer.give"
_RECEIVE = "workloads.group.exchange:Exchange.receive_arrays"
_COMMIT = "orbax.checkpoint._src.checkpointers.async_checkpointer:_on_commit_callback"


def _always(deed: Deed, function: str, seconds: float = 0.0) -> Sabotage:
    return Sabotage(deed, function, _HOSTS, (1, STEPS), start=None, seconds=seconds)


PACE = _always("delay", _UPDATE, _PACE_SECONDS)
"""Makes steps so long that a lost slice is back before the job ends."""


def job_on(group: str, fewest: int = _SLICES - 1, **training: object) -> Mapping[str, object]:
    """Return the settings of a job on three slices of the group, at least `fewest` of which must be there to train."""
    steps = {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS, "global_batch": 24}
    return {
        "slice_failure": "continue",
        "slices": {"group": group, "count": _SLICES, "min_count": fewest},
        "training": {**steps, **training},
    }


def _expected(lost: int = 1, charged: int = 1, departure: Departure | None = None) -> Expected:
    left = departure or Departure(lost)
    return Expected(starts=1, charged=charged, endings=frozenset({"DONE"}), lost_steps=0, departure=left)


def _fault(
    name: str,
    what: str,
    strike: Callable[[Target, str], None],
    expected: Expected,
    *more: Sabotage,
    group: str = SINGLES,
    fewest: int = _SLICES - 1,
    at_step: int = _AT_STEP,
    anytime: bool = False,
) -> Fault:
    edit = add_sabotages(PACE, *more)
    return Fault(name, what, strike, expected, at_step=at_step, job=job_on(group, fewest), edit=edit, anytime=anytime)


def leader(target: Target, job: str) -> int:
    """Return the slice that leads."""
    return target.view(job)["led_by"]


def followers(target: Target, job: str) -> list[int]:
    """Return the slices of the newest view that do not lead."""
    view = target.view(job)
    return [one for one in view["slices"] if one != view["led_by"]]


def _follower(target: Target, job: str) -> int:
    """Return a slice that does not lead. Raises ProcessLookupError if the leading slice is alone."""
    if not (found := followers(target, job)):
        raise ProcessLookupError(f"expected another slice than the leading one of {job}, got none")
    return found[0]


def kill(target: Target, job: str, *slices: int) -> None:
    """Kill all hosts of these slices at once."""
    _send(target, signal.SIGKILL, job, *slices)


def _send(target: Target, number: signal.Signals, job: str, *slices: int) -> None:
    hosts = target.jobset(job)["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"]
    target.send(number, job, *[f"slice-{one}-{host}" for one in slices for host in range(hosts)])


def _kill_follower(target: Target, job: str) -> None:
    kill(target, job, _follower(target, job))


def _kill_both(target: Target, job: str) -> None:
    kill(target, job, *followers(target, job))


def _kill_leader(target: Target, job: str) -> None:
    kill(target, job, leader(target, job))


def _kill_host(target: Target, job: str) -> None:
    """Kill the last host of a slice, whose other hosts then end too."""
    target.send(signal.SIGKILL, job, f"slice-{_follower(target, job)}-1")


def _preempt(target: Target, job: str) -> None:
    _send(target, signal.SIGTERM, job, _follower(target, job))


def _kill_follower_until_it_returns(target: Target, job: str) -> int:
    """Kill a slice, wait until it is about to get the state again, and return the slice that gives it."""
    one, before = _follower(target, job), target.view(job)["number"]
    kill(target, job, one)

    givers: dict[int, int] = {}

    def returns() -> bool:
        view = target.view(job)
        # The view in which it was killed may name who gave it the state when the job began.
        if view["number"] > before:
            givers.update(view["donors"])
        return one in givers

    target.wait(f"the return of slice {one} of {job}", returns, _TOGETHER_SECONDS)
    return givers[one]


def _kill_and_then_the_donor(target: Target, job: str) -> None:
    """Kill a slice, and after its return the slice whose state it has."""
    donor, done = _kill_follower_until_it_returns(target, job), len(target.steps(job))
    target.wait(f"more steps of {job}", lambda: len(target.steps(job)) > done + 3, _TOGETHER_SECONDS)
    kill(target, job, donor)


def _kill_donor(target: Target, job: str) -> None:
    """Kill a slice, and the slice that gives it the state before it has given it."""
    kill(target, job, _kill_follower_until_it_returns(target, job))


def _stop_for_a_while(target: Target, job: str) -> None:
    pid = target.pid(f"{job}-slice-{_follower(target, job)}-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(_STOPPED_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)


def _kill_writer(target: Target, job: str) -> None:
    """Kill the leading slice when the files of a checkpoint are written and its commit is not."""

    def writes() -> bool:
        checkpoint = target.run_folder(job) / "checkpoints" / str(SAVE_EVERY)
        return (checkpoint / "record").exists() and not (checkpoint / "commit_success.txt").exists()

    target.wait(f"a save of {job}", writes, _TOGETHER_SECONDS)
    _kill_leader(target, job)


_SILENT = Departure(replaced=False, silent_seconds=_SILENT_SECONDS)
_FOLLOWS = "slice-1-0"

LOST = (
    _fault("slice-lost", "a slice is killed", _kill_follower, _expected(), anytime=True),
    _fault("leader-slice-lost", "the leading slice is killed", _kill_leader, _expected(), anytime=True),
    _fault(
        "two-slices-lost",
        "two of three slices are killed at once",
        _kill_both,
        _expected(2, charged=2),
        fewest=1,
        anytime=True,
    ),
    _fault("slice-leaves", "a slice receives SIGTERM", _preempt, _expected(charged=0), anytime=True),
    _fault("host-of-slice-lost", "a host of a slice of two is killed", _kill_host, _expected(), group=PAIRS),
    _fault(
        "slow-slice",
        "a slice stops for nine seconds",
        _stop_for_a_while,
        _expected(charged=0, departure=_SILENT),
        anytime=True,
    ),
    _fault(
        "network-cut",
        "all connections of a host to other slices end",
        comes_with_the_job,
        _expected(charged=0, departure=replace(_SILENT, silent_seconds=0.0)),
        Sabotage("cut", _UPDATE, (_FOLLOWS,), (_AT_STEP + 2, _AT_STEP + 2)),
    ),
)

RETURNS = (
    _fault(
        "slice-back",
        "a slice comes back, and the one that gave it the state is killed",
        _kill_and_then_the_donor,
        _expected(2, charged=2),
    ),
    _fault(
        "lost-during-transfer",
        "a slice is killed while it gives its state to another",
        _kill_donor,
        # The next slice that gives it takes as long.
        _expected(2, charged=2, departure=Departure(2, silent_seconds=_HELD_SECONDS)),
        _always("delay", _GIVE, _HELD_SECONDS),
        fewest=1,
    ),
    _fault(
        "damaged-transfer",
        "a bit of the state flips on its way to a slice",
        _kill_follower,
        _expected(),
        replace(_always("damage", _RECEIVE), calls=(1, 1), start=1),
    ),
    _fault(
        "lost-during-save",
        "the leading slice is killed before it commits a checkpoint",
        _kill_writer,
        _expected(),
        _always("delay", _COMMIT, _HELD_SECONDS),
        at_step=SAVE_EVERY - 2,
    ),
)

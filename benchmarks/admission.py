"""Compares simulated admissions with real Kueue and times the simulation: `python -m benchmarks.admission`.

The trials run on real Kueue in a separate sandbox, with Kueue configured as the stack configures it, first without and
then with fair sharing. Every disagreement is printed with the name of its trial, from which
`benchmarks.kueue_situations.draw_named` draws it again. With `--record`, the trials are chosen to reach all branches of
`infra.admission`, and Kueue's decisions are written to the file that the tests replay.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from benchmarks import kueue_decisions, kueue_trials
from benchmarks.kueue_decisions import sharing
from benchmarks.kueue_situations import Trial, draw_varied
from benchmarks.kueue_trials import Result, carry_out
from infra.admission.rehearsal import rehearse
from infra.admission.situation import Admission, FlavorQuota, PodSet, Queue, Situation, Workload
from sandbox import daemon, programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.site import administrator, create

_AT_A_TIME = 40
"""Number of trials that run at the same time. Each has its own cohort."""
_RECORDED = 120
"""Number of trials with and without fair sharing each."""
_QUEUES, _QUEUED, _RUNNING = 10, 1000, 100


def trials(drawn: Callable[[bool], list[Trial]]) -> Iterator[list[Result]]:
    """Run the drawn trials in batches, without and with fair sharing."""
    with tempfile.TemporaryDirectory() as folder:
        site, found = create(Path(folder) / "site"), programs.found()
        daemon.start(site, lambda phase: None)
        try:
            for fair_sharing in (False, True):
                Engine(site, found, _stack_file(Path(folder), fair_sharing=fair_sharing)).up(lambda event: None)
                api, some = administrator(site), drawn(fair_sharing)
                for first in range(0, len(some), _AT_A_TIME):
                    yield carry_out(api, some[first : first + _AT_A_TIME])
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


def busy_cluster(*, fair_sharing: bool) -> Situation:
    """Return a situation with a thousand workloads waiting in ten queues of one cohort without free chips."""
    queues = (
        Queue(
            name=f"q{index}",
            cohort="tpu",
            flavors=tuple(
                FlavorQuota(flavor=flavor, nominal=16 * _RUNNING // _QUEUES, borrowing_limit=None, lending_limit=None)
                for flavor in ("x", "y")
            ),
            checked_flavors=frozenset(),
            within_queue="LowerPriority",
            reclaim="Any",
            while_borrowing="Never",
            when_can_borrow="MayStopSearch",
            when_can_preempt="TryNextFlavor",
            weight=1,
            stop_policy="None",
        )
        for index in range(_QUEUES)
    )
    admissions = (
        Admission(flavors=("xy"[index // _QUEUES % 2],), reserved_at=index, evicted=False) for index in range(_RUNNING)
    )
    running = (
        _workload(f"r{index}", index % _QUEUES, 500 + index % 3, 32, admission)
        for index, admission in enumerate(admissions)
    )
    queued = (
        _workload(f"w{index}", index % _QUEUES, 100 + index % 400, 16 + 16 * (index % 4)) for index in range(_QUEUED)
    )
    return Situation(queues=tuple(queues), workloads=(*running, *queued), fair_sharing=fair_sharing)


def _workload(name: str, queue: int, priority: int, chips: int, admission: Admission | None = None) -> Workload:
    pods = PodSet(name="slice", chips=chips, flavors=None)
    return Workload(
        name=name, uid=name, queue=f"q{queue}", priority=priority, queued_at=0, pod_sets=(pods,), admission=admission
    )


def _time_of_a_rehearsal(*, fair_sharing: bool) -> str:
    busy, newcomer = busy_cluster(fair_sharing=fair_sharing), _workload("new", 0, 1000, 32)
    started = time.monotonic()
    verdict = rehearse(busy, newcomer)
    seconds = time.monotonic() - started
    return f"{_QUEUED} queued, {_RUNNING} running, {sharing(fair_sharing)}: {verdict.outcome}, {seconds:.2f} s"


def main() -> None:
    """Print the time of a simulation, the disagreements and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission")
    parser.add_argument("--trials", type=int, help="trials with and without fair sharing (default: 100, recorded: 120)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="write Kueue's decisions to the file of the tests")
    given = parser.parse_args()
    for fair_sharing in (False, True):
        print(_time_of_a_rehearsal(fair_sharing=fair_sharing), flush=True)
    choose, count = (
        (kueue_trials.choose, given.trials or _RECORDED) if given.record else (draw_varied, given.trials or 100)
    )
    counts: Counter[tuple[str, str, str]] = Counter()
    found: list[Result] = []
    for results in trials(lambda fair_sharing: choose(count, given.seed, fair_sharing=fair_sharing)):
        for result in results:
            agreement = "agrees" if result.agrees else "differs"
            ended = "" if result.ends_alike else ", ends otherwise"
            counts[sharing(result.trial.fair_sharing), result.seen.outcome, agreement + ended] += 1
            if not result.agrees or not result.ends_alike:
                print(result, flush=True)
        found += results
        print(f"{counts.total()} trials", flush=True)
    print(f"{'sharing':12}{'Kueue':12}{'rehearsal':24}{'trials':>7}")
    for (shared, outcome, agreement), count in sorted(counts.items()):
        print(f"{shared:12}{outcome:12}{agreement:24}{count:>7}")
    if given.record:
        # If workloads preempt each other in turn, the result for the newcomer is random.
        recorded = [result for result in found if result.agrees or not result.verdict.restless]
        kueue_decisions.write(kueue_decisions.RECORD, kueue_decisions.kueue(), recorded)


if __name__ == "__main__":
    main()

"""How a host process comes together with the others, and how it parts from them when it fails.

Owns the roll and the watch around the join, and whose failure counts. Loads nothing of models or checkpoints.
"""

from workloads.training.deadline import Deadline, Expectation
from workloads.training.ending import Ending, Failure
from workloads.training.failures import TrainingStopped
from workloads.training.runtime import Place, Processes, join
from workloads.training.start_check import Roll
from workloads.training.watchdog import Watchdog


def joined(place: Place, start_minutes: float, roll: Roll, ending: Ending) -> Processes:
    """This process among all others, which may come up to `start_minutes` later; ends it if they do not."""
    deadline = Deadline()
    deadline.expect("the join of all hosts", start_minutes)

    def explain(missed: Expectation) -> str:
        try:
            return f"{hang(missed)}: {roll.missing()}"
        except Exception as error:  # noqa: BLE001 - storage may be what fails, and the process must end all the same
            return f"{hang(missed)}, and the roll in storage cannot be read: {error}"

    with Watchdog(Processes(0, 1, place.host, deadline), ending, explain):
        if not place.alone:
            roll.sign(place)
        processes = join(place, start_minutes, deadline)
    if processes.leads:
        roll.forget()
    return processes


def hang(missed: Expectation) -> str:
    """What did not come in time, in words."""
    return f"{missed.what} did not end within {missed.minutes:g} minutes"


def end(error: BaseException, processes: Processes, ending: Ending) -> None:
    """End this process for `error`, or for the failure of another host that caused it."""
    failure = Failure.of(error, processes.host)
    if isinstance(error, TrainingStopped) and error.agreed and processes.leave_together():
        ending.fail(failure, others=Processes(0, 1, processes.host))
    # What one host's exit breaks in the others, such as a collective, is not their own failure.
    if word := processes.hear_failure():
        failure = Failure.heard(word, "", processes.host)
    ending.fail(failure, processes)

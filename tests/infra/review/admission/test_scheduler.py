"""The scheduler over several moments: workloads end, are preempted, and run again."""

from infra.review.admission.scheduler import Scheduler
from tests.infra.review.admission.situations import limited, queue, running, situation, waiting


def _settle(scheduler: Scheduler) -> list[tuple[str, str]]:
    return [(event.step, event.workload.name) for event in scheduler.run()]


def test_chips_of_a_workload_that_ends_go_to_those_that_wait() -> None:
    teams = queue("a", {"x": 8}), queue("b", {"x": 0})
    scheduler = Scheduler(situation(*teams, running("first", "a", "x", 8), waiting("next", "b", 8)))
    assert _settle(scheduler) == [("waits", "next")]
    scheduler.finish("a", "first")
    assert _settle(scheduler) == [("admitted", "next")]
    assert scheduler.snapshot.ledger.usage("a", "x") == 0


def test_a_preempted_workload_that_runs_again_on_another_flavor_is_counted_there() -> None:
    owner, guest = queue("owner", {"x": 8}), queue("guest", {"x": 0, "y": limited("y", 0)})
    spare = queue("spare", {"y": 8})
    scheduler = Scheduler(situation(owner, guest, spare, running("moves", "guest", "x", 8)))
    scheduler.submit(waiting("comes", "owner", 8))
    assert ("admitted", "moves") in _settle(scheduler)
    usage = scheduler.snapshot.ledger.usage
    assert (usage("guest", "x"), usage("guest", "y"), usage("owner", "x")) == (0, 8, 8)


def test_workloads_of_one_shape_start_in_the_order_of_their_submission() -> None:
    scheduler = Scheduler(situation(queue("a", {"x": 8}), running("first", "a", "x", 8)))
    for name, at in (("later", 3.0), ("sooner", 2.0)):
        scheduler.submit(waiting(name, "a", 8, at=at))
    _settle(scheduler)
    scheduler.finish("a", "first")
    assert _settle(scheduler) == [("admitted", "sooner"), ("waits", "later")]

"""How trials to record are chosen."""

from benchmarks.kueue_trials import branches
from tests.infra.admission.situations import queue, running, situation, waiting


def test_a_rehearsal_takes_more_branches_when_it_preempts_and_the_same_ones_each_time() -> None:
    own = queue("a", {"x": 8})
    free, full = situation(own), situation(own, running("low", "a", "x", 8, priority=100))
    admitted, preempts = branches(free, waiting("new", "a", 8)), branches(full, waiting("new", "a", 8))
    assert len(preempts - admitted) > len(admitted - preempts)
    assert branches(free, waiting("new", "a", 8)) == admitted

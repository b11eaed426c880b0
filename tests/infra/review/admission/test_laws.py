"""What holds of every rehearsal, on situations such as Kueue is given to decide in the trials."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kueue_decisions import draw, start_trial
from infra.review.admission.rehearsal import rehearse
from infra.review.admission.situation import Situation, Workload

type Drawn = tuple[Situation, Workload]


def _drawn(seed: int, *, fair_sharing: bool) -> Drawn:
    """A situation in which all still wait, and one that comes last, of one pod set."""
    situation, newcomer = start_trial(draw("trial", seed, fair_sharing=fair_sharing))
    return situation, newcomer.model_copy(update={"pod_sets": newcomer.pod_sets[:1]})


drawn = st.builds(_drawn, st.integers(0, 10**6), fair_sharing=st.booleans())


@settings(deadline=None)
@given(drawn, st.randoms())
def test_the_order_in_which_a_cluster_lists_its_objects_changes_nothing(given_: Drawn, random: Random) -> None:
    situation, newcomer = given_
    shuffled = Situation(
        queues=tuple(random.sample(situation.queues, len(situation.queues))),
        workloads=tuple(random.sample(situation.workloads, len(situation.workloads))),
        fair_sharing=situation.fair_sharing,
    )
    first, second = rehearse(situation, newcomer), rehearse(shuffled, newcomer)
    assert (first.outcome, first.flavors, set(first.preempted)) == (
        second.outcome,
        second.flavors,
        set(second.preempted),
    )

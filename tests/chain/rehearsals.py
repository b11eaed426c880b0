"""Rehearsed admissions and replayed windows of events held against the Kueue of a sandbox."""

from benchmarks.kueue_decisions import RECORD, draw_named, names
from benchmarks.kueue_trials import carry_out
from tests.chain.stack import Chain
from tests.infra.review.replay import windows as kueue_windows

TRIALS = 12
"""Of the recorded ones, which Kueue decided when they were recorded."""
WINDOWS, EVENTS = 10, 12
"""Recorded windows and their first events."""


def disagreements(chain: Chain, *, fair_sharing: bool) -> list[str]:
    """Where Kueue does otherwise than was rehearsed, twice."""
    recorded = names(RECORD, fair_sharing=fair_sharing)
    # Most of these do not depend on how fast Kueue retries, as crowded ones do.
    plain = [name for name in recorded if name.startswith("t")][:TRIALS]
    decisions = carry_out(chain.api, [draw_named(name, fair_sharing=fair_sharing) for name in plain])
    return [str(decision) for decision in decisions if not decision.agrees]


def windows_agree(chain: Chain) -> float:
    """Share of the events of some recorded windows after which Kueue has the holders of a replay."""
    _, recorded = kueue_windows.read(kueue_windows.RECORD)
    windows = kueue_windows.carry_out(chain.api, [window.name for window in recorded[:WINDOWS]], EVENTS)
    return kueue_windows.agreement(windows)

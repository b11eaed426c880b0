"""Rehearsed admissions and replayed windows of events held against the Kueue of a sandbox."""

from benchmarks import kueue_windows
from benchmarks.kueue_decisions import RECORD, names
from benchmarks.kueue_situations import NAMESPACE, draw_named
from benchmarks.kueue_trials import carry_out
from infra.cluster.kubernetes import ApiServer
from sandbox.site import administrator
from tests.chain.stack import Chain, wait_until

TRIALS = 12
"""Of the recorded ones, which Kueue decided when they were recorded."""
WINDOWS, EVENTS = 10, 12
"""Recorded windows and their first events."""


def disagreements(chain: Chain, *, fair_sharing: bool) -> list[str]:
    """Where Kueue does otherwise than was rehearsed, twice."""
    api, recorded = administrator(chain.site), names(RECORD, fair_sharing=fair_sharing)
    # Most of these do not depend on how fast Kueue retries, as crowded ones do.
    plain = [name for name in recorded if name.startswith("t")][:TRIALS]
    decisions = carry_out(api, [draw_named(name, fair_sharing=fair_sharing) for name in plain])
    _remove_namespace(api)
    return [str(decision) for decision in decisions if not decision.agrees]


def windows_agree(chain: Chain) -> float:
    """Share of the events of some recorded windows after which Kueue has the holders of a replay."""
    api, (_, recorded) = administrator(chain.site), kueue_windows.read(kueue_windows.RECORD)
    windows = kueue_windows.carry_out(api, [window.name for window in recorded[:WINDOWS]], EVENTS)
    _remove_namespace(api)
    return kueue_windows.agreement(windows)


def _remove_namespace(api: ApiServer) -> None:
    """A destroy is refused while there is a namespace that the stack did not make."""
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    api.delete(namespace, {})
    wait_until(lambda: api.find(namespace) is None, lambda: str(api.find(namespace)))

"""Rehearsed admissions held against the Kueue of a sandbox."""

from benchmarks.kueue_situations import NAMESPACE, draw_varied
from benchmarks.kueue_trials import carry_out
from sandbox.site import administrator
from tests.chain.stack import Chain, wait_until

TRIALS = 12
"""Of rehearsed admissions; `benchmarks.admission` carries out hundreds."""


def disagreements(chain: Chain, *, fair_sharing: bool) -> list[str]:
    """Where Kueue does otherwise than was rehearsed, twice: on a busy machine it may be looked at too early."""
    drawn = draw_varied(TRIALS, seed=0, fair_sharing=fair_sharing)
    api = administrator(chain.site)
    doubtful = [result.trial for result in carry_out(api, drawn, fair_sharing=fair_sharing) if not result.agrees]
    again = carry_out(api, doubtful, fair_sharing=fair_sharing) if doubtful else []
    # A destroy is refused while there is a namespace that the stack did not make.
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    api.delete(namespace, {})
    wait_until(lambda: api.find(namespace) is None, lambda: str(api.find(namespace)))
    return [str(result) for result in again if not result.agrees]

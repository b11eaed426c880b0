"""Rehearsed admissions held against the Kueue of a sandbox."""

from benchmarks.kueue_situations import NAMESPACE, draw_varied
from benchmarks.kueue_trials import carry_out
from sandbox.site import administrator
from tests.chain.stack import Chain, wait_until

TRIALS = 12
"""Of rehearsed admissions; `benchmarks.admission` carries out hundreds."""


def disagreements(chain: Chain, *, fair_sharing: bool) -> list[str]:
    """Where Kueue does otherwise than was rehearsed, twice."""
    api = administrator(chain.site)
    results = carry_out(api, draw_varied(TRIALS, seed=0, fair_sharing=fair_sharing))
    # A destroy is refused while there is a namespace that the stack did not make.
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    api.delete(namespace, {})
    wait_until(lambda: api.find(namespace) is None, lambda: str(api.find(namespace)))
    return [str(result) for result in results if not result.agrees]

"""The brake of a stack: its queues stop, with every job that they have admitted, when `budget.usd_total` is used up.

`multislice enforce-budget` pulls and releases it.
"""

from infra import borders
from infra.kubernetes import APPLY_PATCH, ApiServer
from infra.names import BUDGET_ANNOTATION, KUEUE_API_VERSION, QUEUES
from infra.objects import Manifest, manifest

USED_UP = "budget-used-up"
"""Policy that keeps a stopped queue stopped."""
_MANAGER = "multislice-budget"
"""Owner of the fields of a queue that stop it. Another change of the object does not take them over."""


def brake_policies(prefix: str) -> dict[str, Manifest]:
    """Return the policy, and its binding, that a queue stays stopped until `multislice enforce-budget` releases it.

    `prefix` begins the names of the stack's objects in a cluster that others use too.

    An `up` would open the queue if it changed it, for example after a refresh, because the stack file declares it open.
    """
    group, _, version = KUEUE_API_VERSION.partition("/")
    message = (
        "budget.usd_total of the stack is used up, so this queue stays stopped; raise it in the stack file, then run"
        " multislice enforce-budget"
    )
    stopped = (
        f"!('{BUDGET_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))"
        " || object.spec.?stopPolicy.orValue('None') == 'HoldAndDrain'"
    )
    rule = [(group, "clusterqueues", "UPDATE")]
    return {
        USED_UP: borders.policy(f"{prefix}{USED_UP}", rule, {message: stopped}, versions=[version]),
        f"{USED_UP}-binding": borders.binding(f"{prefix}{USED_UP}"),
    }


def stop_queue(api: ApiServer, queue: str, because: str) -> None:
    """Stop the queue of a team: its jobs save and free their chips, and no job starts."""
    _apply(api, queue, {"stopPolicy": "HoldAndDrain"}, {BUDGET_ANNOTATION: because})


def release_queue(api: ApiServer, queue: str) -> None:
    """Undo `stop_queue`. A queue that the stack file declares as stopped stays stopped."""
    _apply(api, queue, {}, {})


def _apply(api: ApiServer, queue: str, spec: Manifest, annotations: dict[str, str]) -> None:
    """Make these fields the only ones that this program owns in the queue."""
    applied = manifest(KUEUE_API_VERSION, "ClusterQueue", queue, annotations=annotations, spec=spec)
    owner = {"fieldManager": _MANAGER, "force": "true"}
    api.request("PATCH", f"{QUEUES}/{queue}", applied, owner, APPLY_PATCH)

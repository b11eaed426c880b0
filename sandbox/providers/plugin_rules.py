"""What the published `gcp` plugin refuses by itself, before it asks any API. Pure.

Owns its rules for clusters and node pools, in its words; what GKE refuses lies in `node_pools`.
https://github.com/hashicorp/terraform-provider-google-beta/tree/main/google-beta/services/container
"""

from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object, at

_SURGE = ("maxSurge", "maxUnavailable")


def require_cluster(properties: Object, before: Object | None) -> None:
    """Refuse a cluster whose settings exclude each other; `before` is None for a new one.

    Raises:
        Refusal: in the plugin's words.
    """
    if properties.get("skipNodePoolRefresh") and properties.get("nodePools"):
        raise Refusal(
            "skip_node_pool_refresh cannot be true when inline node_pool blocks are defined; use"
            " google_container_node_pool resources instead, or unset skip_node_pool_refresh"
        )
    nodes, master = properties.get("nodeVersion", ""), properties.get("minMasterVersion", "")
    if before is not None or not nodes:
        return
    if properties.get("removeDefaultNodePool"):
        raise Refusal("node_version can only be specified if remove_default_node_pool is not true")
    if master and nodes.split("-")[0] != master.split("-")[0]:
        raise Refusal(
            f"Resource argument node_version (value: {nodes}) must either be unset or set to the same value as"
            f" min_master_version (value: {master}) on create."
        )


def require_node_pool(properties: Object, before: Object | None) -> None:
    """Refuse a node pool whose settings exclude each other; `before` is None for a new one.

    Raises:
        Refusal: in the plugin's words.
    """
    if before is None and properties.get("name") and properties.get("namePrefix"):
        raise Refusal("Cannot specify both name and name_prefix for a node_pool")
    if before is None and properties.get("nodeCount") and properties.get("initialNodeCount"):
        name = properties.get("name", properties.get("namePrefix"))
        raise Refusal(f"Cannot set both initial_node_count and node_count on node pool {name}")
    _require_upgrade(properties.get("upgradeSettings", {}), (before or {}).get("upgradeSettings", {}))


def _require_upgrade(settings: Object, before: Object) -> None:
    strategy = settings.get("strategy", "SURGE")
    if strategy != "SURGE" and any(settings.get(key, 0) != before.get(key, 0) for key in _SURGE):
        raise Refusal("Surge upgrade settings may not be changed when surge strategy is not enabled")
    blue_green = settings.get("blueGreenSettings")
    if blue_green == before.get("blueGreenSettings"):
        return
    if strategy != "BLUE_GREEN":
        raise Refusal("Blue-green upgrade settings may not be changed when blue-green strategy is not enabled")
    if all(at(settings, f"blueGreenSettings.{kind}RolloutPolicy") for kind in ("standard", "autoscaled")):
        raise Refusal("`standard_rollout_policy` and `autoscaled_rollout_policy` cannot be set at the same time")

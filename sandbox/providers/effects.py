"""Effects of clusters, node pools and buckets in addition to their records: checks, Nodes, objects in the GCS server.

`require_node_pool` holds the checks of the published `gcp` plugin before it calls an API; `node_pools` holds GKE's.
https://github.com/hashicorp/terraform-provider-google-beta/tree/main/google-beta/services/container
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, override
from urllib.parse import quote

import urllib3
import yaml

from infra.cluster.kubernetes import APPLY_PATCH, ApiServer, Json
from infra.stack.names import NODE_POOL_LABEL, NODES
from sandbox.programs import AUTOSCALER_KINDS, MONITORING_KINDS, copied_path
from sandbox.providers.cloud import CLUSTER, NODE_POOL, PROJECT_MEMBER, PROJECT_SERVICE, RESOURCE_POLICY, Cloud
from sandbox.providers.node_pools import is_decided, nodes, pool_of, require_valid
from sandbox.providers.plugin import HalfMade, Refusal
from sandbox.providers.values import UNKNOWN, at
from sandbox.servers import erase
from sandbox.site import NODE_LABEL, Site, start_command
from sandbox.tpu_environment import MACHINE_LABEL

_SURGE = ("maxSurge", "maxUnavailable")

_STREAMING_API = "containerfilesystem.googleapis.com"
_STREAMING_ROLE = "roles/serviceusage.serviceUsageConsumer"


def require_node_pool(properties: Json, before: Json | None) -> None:
    """Refuse a node pool whose settings exclude each other, in the plugin's words; `before` is None for a new one."""
    if before is None and properties.get("nodeCount") and properties.get("initialNodeCount"):
        raise Refusal(f"Cannot set both initial_node_count and node_count on node pool {properties.get('name')}")
    settings, earlier = properties.get("upgradeSettings", {}), (before or {}).get("upgradeSettings", {})
    changed = any(settings.get(key, 0) != earlier.get(key, 0) for key in _SURGE)
    if changed and settings.get("strategy", "SURGE") != "SURGE":
        raise Refusal("Surge upgrade settings may not be changed when surge strategy is not enabled")


class Effect:
    """A resource that is only recorded. Base class of all resources with further effects."""

    def require(self, properties: Json, before: Json | None) -> None:
        """Refuse what the plugin or the API would refuse. Previews call it too, with unknown values.

        `before` are the properties that an update starts from; None for a new resource.
        """

    def create(self, properties: Json) -> None:
        """Create the real object of the resource, or refuse. Raises HalfMade if it was not created as declared."""

    def observe(self, properties: Json) -> Json | None:
        """Return the properties as they really are; None when the resource is gone."""
        return properties

    def update(self, old: Json, new: Json) -> None:
        """Apply a change."""

    def delete(self, properties: Json) -> None:
        """Delete the real object of the resource, or refuse."""


@dataclass(frozen=True)
class _OfCluster(Effect):
    site: Site
    cloud: Cloud
    api: Callable[[], ApiServer]


class ClusterEffect(_OfCluster):
    """A cluster: the sandbox's only API server, with the kinds that GKE installs."""

    @override
    def require(self, properties: Json, before: Json | None) -> None:
        others = [record["name"] for _, record in self.cloud.every(CLUSTER) if record["name"] != properties["name"]]
        if others:
            raise Refusal(f"a sandbox has one cluster, and {others[0]} exists; delete it, or use another sandbox")

    @override
    def create(self, properties: Json) -> None:
        _install(copied_path(MONITORING_KINDS), self.api())

    @override
    def delete(self, properties: Json) -> None:
        if properties["deletionProtection"]:
            raise Refusal(
                "Cannot destroy cluster because deletion_protection is set to true."
                " Set it to false to proceed with cluster deletion."
            )
        for pool_id, pool in list(self.cloud.every(NODE_POOL)):
            if _last(pool["cluster"]) == properties["name"]:
                self.cloud.remove(NODE_POOL, pool_id)
        erase(self.site)


class NodePoolEffect(_OfCluster):
    """A node pool, with a Node for each machine."""

    @override
    def require(self, properties: Json, before: Json | None) -> None:
        require_node_pool(properties, before)
        cluster = self._find(CLUSTER, _last(properties["cluster"]))
        if is_decided(properties, cluster):
            planned = {"name": UNKNOWN, "location": properties.get("location", "")}
            require_valid(properties, cluster or planned, self._policy(properties))

    @override
    def create(self, properties: Json) -> None:
        if at(properties, "nodeConfig.gcfsConfig.enabled"):
            self._require_streaming(properties)
        if properties["name"] in self.cloud.stock_outs():
            raise HalfMade(f'NodePool {properties["name"]} was created in the error state "ERROR"')
        if at(properties, "queuedProvisioning.enabled"):
            # As late as possible, because it is not documented when GKE installs it.
            _install(copied_path(AUTOSCALER_KINDS), self.api())
        for node in self._nodes(properties):
            # A killed engine may have left the Node behind.
            if self.api().find(f"{NODES}/{node['metadata']['name']}") is None:
                self.api().request("POST", NODES, node)

    @override
    def update(self, old: Json, new: Json) -> None:
        live, before = self._live(old), {node["metadata"]["name"]: node for node in self._nodes(old)}
        wanted = {node["metadata"]["name"]: node for node in self._nodes(new)}
        # GKE replaces a node by another one when its machine type changes.
        replaced = {name for name in live.keys() & wanted.keys() if _machine(live[name]) != _machine(wanted[name])}
        for name in (live.keys() - wanted.keys()) | replaced:
            self.api().delete(f"{NODES}/{name}", {})
        for name, node in wanted.items():
            if name not in live or name in replaced:
                self.api().request("POST", NODES, node)
            elif node != before.get(name):
                patch = _node_patch(live[name], before.get(name, node), node)
                self.api().patch(f"{NODES}/{name}", patch)

    @override
    def delete(self, properties: Json) -> None:
        for name in self._live(properties):
            self.api().delete(f"{NODES}/{name}", {})

    def _require_streaming(self, properties: Json) -> None:
        """Refuse nodes that cannot stream images: GKE would make them, but their pods would not start."""
        member = f"serviceAccount:{at(properties, 'nodeConfig.serviceAccount')}"
        if _STREAMING_API not in {record["service"] for _, record in self.cloud.every(PROJECT_SERVICE)}:
            raise Refusal(f"image streaming needs the API {_STREAMING_API}; enable it")
        if (member, _STREAMING_ROLE) not in {(it["member"], it["role"]) for _, it in self.cloud.every(PROJECT_MEMBER)}:
            raise Refusal(f"image streaming needs {_STREAMING_ROLE}; grant it to {member}")

    def _live(self, properties: Json) -> dict[str, Json]:
        selector = f"{NODE_LABEL}=true,{NODE_POOL_LABEL}={properties['name']}"
        found = self.api().request("GET", NODES, query={"labelSelector": selector})
        return {node["metadata"]["name"]: node for node in found["items"]}

    def _nodes(self, properties: Json) -> list[Json]:
        cluster = self._find(CLUSTER, _last(properties["cluster"]))
        if cluster is None:
            raise Refusal(f"googleapi: Error 404: Not found: {properties['cluster']}, notFound")
        return nodes(pool_of(properties, cluster, self._policy(properties)), self.site)

    def _policy(self, properties: Json) -> Json | None:
        return self._find(RESOURCE_POLICY, properties.get("placementPolicy", {}).get("policyName"))

    def _find(self, resource_type: str, name: str | None) -> Json | None:
        return next((record for _, record in self.cloud.every(resource_type) if record["name"] == name), None)


@dataclass(frozen=True)
class BucketEffect(Effect):
    """A bucket of the GCS server."""

    site: Site

    @override
    def create(self, properties: Json) -> None:
        if self.observe(properties) is not None:
            return  # A killed engine may have left it behind.
        body = {"name": properties["name"], "location": properties["location"]}
        self._call("POST", f"?project={properties['project']}", body)

    @override
    def observe(self, properties: Json) -> Json | None:
        return properties if self._call("GET", f"/{properties['name']}") is not None else None

    @override
    def delete(self, properties: Json) -> None:
        name, has_folders = properties["name"], False
        while items := (self._call("GET", f"/{name}/o?maxResults=1000") or {}).get("items"):
            if not properties["forceDestroy"]:
                raise Refusal(
                    f"Error trying to delete bucket {name} containing objects without `force_destroy` set to true"
                    " (googleapi: Error 409: The bucket you tried to delete is not empty., conflict)"
                )
            for item in items:
                self._call("DELETE", f"/{name}/o/{quote(item['name'], safe='')}")
                has_folders |= "/" in item["name"]
        if has_folders and at(properties, "hierarchicalNamespace.enabled"):
            raise Refusal("googleapi: Error 409: The bucket you tried to delete is not empty., conflict")
        self._call("DELETE", f"/{name}")

    def _call(self, method: str, path: str, body: Json | None = None) -> Json | None:
        """Call the storage API and return the answer; None if the bucket or object does not exist."""
        content = None if body is None else json.dumps(body)
        url = f"{self.site.gcs_url}/storage/v1/b{path}"
        try:
            answer = urllib3.request(method, url, body=content, headers={"Content-Type": "application/json"})
        except urllib3.exceptions.HTTPError as error:
            start = start_command(self.site.root)
            raise Refusal(f"the sandbox's GCS server is unreachable: {error}; start it with `{start}`") from None
        if answer.status == 404:
            return None
        if answer.status >= 300:
            raise Refusal(f"googleapi: Error {answer.status}: {answer.data.decode(errors='replace')}")
        return json.loads(answer.data) if answer.data else {}


def _machine(node: Json) -> str:
    return node["metadata"]["labels"][MACHINE_LABEL]


def _node_patch(live: Json, before: Json, after: Json) -> Json:
    """Return the patch of a Node for a change of its pool. It leaves labels and taints of other owners alone."""
    labels: dict[str, Any] = {key: None for key in before["metadata"]["labels"]} | after["metadata"]["labels"]
    ours = {taint["key"] for taint in [*before["spec"]["taints"], *after["spec"]["taints"]]}
    others = [taint for taint in live["spec"].get("taints", []) if taint["key"] not in ours]
    return {"metadata": {"labels": labels}, "spec": {"taints": [*after["spec"]["taints"], *others]}}


def _install(folder: Path, api: ApiServer) -> None:
    """Apply CustomResourceDefinitions, as GKE does."""
    for path in sorted(folder.glob("*.yaml")):
        for kind in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            name = kind["metadata"]["name"]
            where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            api.request("PATCH", where, kind, {"fieldManager": "gke", "force": "true"}, APPLY_PATCH)


def _last(cluster: str) -> str:
    """Return the name at the end of a cluster's id, or the name itself."""
    return cluster.rpartition("/")[2]

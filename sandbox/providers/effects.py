"""What clusters, node pools and buckets do beside being remembered: check, Nodes, objects in the GCS server."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, override
from urllib.parse import quote

import urllib3
import yaml

from infra.kubernetes import APPLY_PATCH, ApiServer
from infra.names import NODE_POOL_LABEL, NODES
from sandbox.catalog import AUTOSCALER_KINDS, MONITORING_KINDS, Copy, copied_path
from sandbox.control_plane import erase
from sandbox.providers.cloud import Cloud
from sandbox.providers.node_pools import is_decided, pool_of, require_valid
from sandbox.providers.nodes import nodes
from sandbox.providers.plugin import HalfMade, Refusal
from sandbox.providers.plugin_rules import require_cluster, require_node_pool
from sandbox.providers.resource_types import CLUSTER, NODE_POOL, PROJECT_MEMBER, PROJECT_SERVICE, RESOURCE_POLICY
from sandbox.providers.values import UNKNOWN, Object, at
from sandbox.site import NODE_LABEL, Site

_STREAMING_API = "containerfilesystem.googleapis.com"
_STREAMING_ROLE = "roles/serviceusage.serviceUsageConsumer"


class Effect:
    """A resource that is only remembered: the base of those that do more."""

    def require(self, properties: Object, before: Object | None) -> None:
        """Refuse what plugin or API would refuse; also called in previews, with unknown values.

        `before` is what an update starts from; None for a new resource.
        """

    def create(self, properties: Object) -> None:
        """Make it real.

        Raises:
            HalfMade: it exists now, but is not as it should be.
            Refusal: it does not exist.
        """

    def observe(self, properties: Object) -> Object | None:
        """The properties as reality has them; None when it is gone."""
        return properties

    def update(self, old: Object, new: Object) -> None:
        """Carry a change out."""

    def delete(self, properties: Object) -> None:
        """Undo it, or refuse to."""


@dataclass(frozen=True)
class ClusterEffect(Effect):
    """The one API server of the sandbox stands for the cluster's, with the kinds that GKE brings along."""

    site: Site
    cloud: Cloud
    api: Callable[[], ApiServer]

    @override
    def require(self, properties: Object, before: Object | None) -> None:
        require_cluster(properties, before)
        others = [record["name"] for _, record in self.cloud.every(CLUSTER) if record["name"] != properties["name"]]
        if others:
            raise Refusal(f"a sandbox has one cluster, and {others[0]} exists; delete it, or use another sandbox")

    @override
    def create(self, properties: Object) -> None:
        _make(_kinds(MONITORING_KINDS), self.api())

    @override
    def delete(self, properties: Object) -> None:
        if properties["deletionProtection"]:
            raise Refusal(
                "Cannot destroy cluster because deletion_protection is set to true."
                " Set it to false to proceed with cluster deletion."
            )
        for pool_id, pool in list(self.cloud.every(NODE_POOL)):
            if _last(pool["cluster"]) == properties["name"]:
                self.cloud.remove(NODE_POOL, pool_id)
        erase(self.site)


@dataclass(frozen=True)
class NodePoolEffect(Effect):
    """One Node per machine."""

    site: Site
    cloud: Cloud
    api: Callable[[], ApiServer]

    @override
    def require(self, properties: Object, before: Object | None) -> None:
        require_node_pool(properties, before)
        cluster = self._find_cluster(properties)
        if is_decided(properties, cluster):
            planned = {"name": UNKNOWN, "location": properties.get("location", "")}
            require_valid(properties, cluster or planned, self._policy(properties))

    @override
    def create(self, properties: Object) -> None:
        if at(properties, "nodeConfig.gcfsConfig.enabled"):
            self._require_streaming(properties)
        if properties["name"] in self.cloud.stock_outs():
            raise HalfMade(f'NodePool {properties["name"]} was created in the error state "ERROR"')
        if at(properties, "queuedProvisioning.enabled"):
            # As late as GKE may bring it: when it does is not documented.
            _make(_kinds(AUTOSCALER_KINDS), self.api())
        for node in self._nodes(properties):
            # An engine that was killed may have left it.
            if self.api().find(f"/api/v1/nodes/{node['metadata']['name']}") is None:
                self.api().request("POST", NODES, node)

    @override
    def update(self, old: Object, new: Object) -> None:
        live, before = self._live(old), {node["metadata"]["name"]: node for node in self._nodes(old)}
        wanted = {node["metadata"]["name"]: node for node in self._nodes(new)}
        # Another machine is another node, which GKE makes in place of the old one.
        replaced = {name for name in live.keys() & wanted.keys() if _machine(live[name]) != _machine(wanted[name])}
        for name in (live.keys() - wanted.keys()) | replaced:
            self.api().delete(f"/api/v1/nodes/{name}", {})
        for name, node in wanted.items():
            if name not in live or name in replaced:
                self.api().request("POST", NODES, node)
            elif node != before.get(name):
                patch = _node_patch(live[name], before.get(name, node), node)
                self.api().patch(f"/api/v1/nodes/{name}", patch)

    @override
    def delete(self, properties: Object) -> None:
        for name in self._live(properties):
            self.api().delete(f"/api/v1/nodes/{name}", {})

    def _require_streaming(self, properties: Object) -> None:
        """Refuse nodes that cannot stream images: GKE makes them, and their pods do not start."""
        member = f"serviceAccount:{at(properties, 'nodeConfig.serviceAccount')}"
        if _STREAMING_API not in {record["service"] for _, record in self.cloud.every(PROJECT_SERVICE)}:
            raise Refusal(f"image streaming needs the API {_STREAMING_API}; switch it on")
        if (member, _STREAMING_ROLE) not in {(it["member"], it["role"]) for _, it in self.cloud.every(PROJECT_MEMBER)}:
            raise Refusal(f"image streaming needs {_STREAMING_ROLE}; grant it to {member}")

    def _live(self, properties: Object) -> dict[str, Object]:
        selector = f"{NODE_LABEL}=true,{NODE_POOL_LABEL}={properties['name']}"
        found = self.api().request("GET", NODES, query={"labelSelector": selector})
        return {node["metadata"]["name"]: node for node in found["items"]}

    def _nodes(self, properties: Object) -> list[Object]:
        return nodes(pool_of(properties, self._cluster(properties), self._policy(properties)), self.site)

    def _cluster(self, properties: Object) -> Object:
        cluster = self._find_cluster(properties)
        if cluster is None:
            raise Refusal(f"googleapi: Error 404: Not found: {properties['cluster']}, notFound")
        return cluster

    def _find_cluster(self, properties: Object) -> Object | None:
        name = _last(properties["cluster"])
        return next((record for _, record in self.cloud.every(CLUSTER) if record["name"] == name), None)

    def _policy(self, properties: Object) -> Object | None:
        name = properties.get("placementPolicy", {}).get("policyName")
        return next((record for _, record in self.cloud.every(RESOURCE_POLICY) if record["name"] == name), None)


@dataclass(frozen=True)
class BucketEffect(Effect):
    """A bucket of the GCS server."""

    site: Site

    @override
    def create(self, properties: Object) -> None:
        if self.observe(properties) is not None:
            return  # An engine that was killed may have left it.
        body = {"name": properties["name"], "location": properties["location"]}
        self._call("POST", f"?project={properties['project']}", body)

    @override
    def observe(self, properties: Object) -> Object | None:
        return properties if self._call("GET", f"/{properties['name']}") is not None else None

    @override
    def delete(self, properties: Object) -> None:
        name, has_folders = properties["name"], False
        for item in self._objects(name):
            if not properties["forceDestroy"]:
                raise Refusal(
                    f"Error trying to delete bucket {name} containing objects without `force_destroy` set to true"
                    " (googleapi: Error 409: The bucket you tried to delete is not empty., conflict)"
                )
            self._call("DELETE", f"/{name}/o/{quote(item, safe='')}")
            has_folders |= "/" in item
        if has_folders and at(properties, "hierarchicalNamespace.enabled"):
            raise Refusal("googleapi: Error 409: The bucket you tried to delete is not empty., conflict")
        self._call("DELETE", f"/{name}")

    def _objects(self, name: str) -> Iterator[str]:
        while items := (self._call("GET", f"/{name}/o?maxResults=1000") or {}).get("items"):
            yield from (item["name"] for item in items)

    def _call(self, method: str, path: str, body: Object | None = None) -> Object | None:
        """One call of the storage API; None when there is no such bucket or object."""
        content = None if body is None else json.dumps(body)
        url = f"{self.site.gcs_url}/storage/v1/b{path}"
        try:
            answer = urllib3.request(method, url, body=content, headers={"Content-Type": "application/json"})
        except urllib3.exceptions.HTTPError as error:
            raise Refusal(f"the sandbox's GCS server is unreachable: {error}; start it with `make up`") from None
        if answer.status == 404:
            return None
        if answer.status >= 300:
            raise Refusal(f"googleapi: Error {answer.status}: {answer.data.decode(errors='replace')}")
        return json.loads(answer.data) if answer.data else {}


def _machine(node: Object) -> str:
    return node["metadata"]["labels"]["node.kubernetes.io/instance-type"]


def _node_patch(live: Object, before: Object, after: Object) -> Object:
    """What the pool's change means for a Node, leaving alone what others put on it."""
    labels: dict[str, Any] = {key: None for key in before["metadata"]["labels"]} | after["metadata"]["labels"]
    ours = {taint["key"] for taint in [*before["spec"]["taints"], *after["spec"]["taints"]]}
    others = [taint for taint in live["spec"].get("taints", []) if taint["key"] not in ours]
    return {"metadata": {"labels": labels}, "spec": {"taints": [*after["spec"]["taints"], *others]}}


def _kinds(copy: Copy) -> list[Object]:
    paths = sorted(copied_path(copy).glob("*.yaml"))
    return [kind for path in paths for kind in yaml.load_all(path.read_text(), yaml.CSafeLoader)]


def _make(kinds: Iterable[Object], api: ApiServer) -> None:
    for kind in kinds:
        api.request("PATCH", _path(kind), kind, {"fieldManager": "gke", "force": "true"}, APPLY_PATCH)


def _path(kind: Object) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind['metadata']['name']}"


def _last(cluster: str) -> str:
    """The name in a cluster's name or id."""
    return cluster.rpartition("/")[2]

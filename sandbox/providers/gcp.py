"""The sandbox's `gcp` plugin: Google Cloud as a folder of records, with real Nodes and buckets behind them."""

import base64
import hashlib
import threading
from pathlib import Path
from typing import override

from infra.cluster.kubernetes import ApiServer, Json
from infra.stack.names import OFFLINE
from sandbox import programs, site
from sandbox.providers.cloud import BUCKET, CLUSTER, NODE_POOL, SUBNETWORK, Cloud, ResourceType, fill, row
from sandbox.providers.cluster import wait_ready
from sandbox.providers.effects import BucketEffect, ClusterEffect, Effect, NodePoolEffect
from sandbox.providers.plugin import Diff, HalfMade, NotReady, Plugin, Refusal, Resource, name_of, serve, type_of
from sandbox.providers.values import conceal, has_unknown, merge, prune, reveal, unknown_leaves
from sandbox.site import Site, administrator

_MAPS = ("labels", "metadata", "resourceLabels", "resourceManagerTags")
"""Fields of a cluster that are maps, not blocks."""


class GcpPlugin(Plugin):
    """Google Cloud of one site."""

    def __init__(self, here: Site) -> None:
        super().__init__("pulumi_gcp")
        self._site = here
        self._cloud = Cloud(here.cloud)
        self._connected: ApiServer | None = None
        self._connecting = threading.Lock()
        self._effects: dict[str, Effect] = {
            CLUSTER: ClusterEffect(here, self._cloud, self._api_server),
            NODE_POOL: NodePoolEffect(here, self._cloud, self._api_server),
            BUCKET: BucketEffect(here),
        }

    @override
    def check(self, urn: str, old: Json, new: Json, seed: bytes) -> Json:
        name = row(type_of(urn)).name
        if name is None or name in new or "namePrefix" in new:
            return new
        return {**new, name: old.get(name) or f"{name_of(urn)}-{seed.hex()[:7]}"}

    @override
    def diff(self, old: Resource, new: Json) -> Diff:
        kind = row(old.type)
        # Against the state, not the old inputs, so that a change which an update did not make shows every time.
        state = reveal(old.state)
        before = merge(prune(state, reveal(new)), prune(state, reveal(old.inputs)))
        after = reveal(new)
        found = tuple(kind.differences(before, after))
        replaces = frozenset(change.path for change in found if kind.is_replaced_by(change, before, after))
        return Diff(found, replaces, same_name=kind.name is None or old.inputs.get(kind.name) == new.get(kind.name))

    @override
    def create(self, urn: str, inputs: Json, timeout_seconds: float, *, preview: bool) -> tuple[str, Json]:
        kind = row(type_of(urn))
        given = merge(kind.defaults, reveal(inputs))
        effect = self._effect(urn)
        effect.require(given, None)
        if preview:
            outputs = unknown_leaves(kind.outputs)
            return "", conceal(merge(outputs, given), inputs)
        resource_id, properties = self._completed(kind, given)
        if self._cloud.find(type_of(urn), resource_id) is not None:
            raise Refusal(f"googleapi: Error 409: Already exists: {resource_id}, alreadyExists")
        properties = kind.answered(properties)
        state = conceal(properties, inputs)
        try:
            effect.create(properties)
        except HalfMade as error:
            self._cloud.keep(type_of(urn), resource_id, properties)
            raise NotReady(f"creating {urn}: 1 error occurred:\n\t* {error}", resource_id, state) from None
        self._cloud.keep(type_of(urn), resource_id, properties)
        return resource_id, state

    @override
    def read(self, resource: Resource) -> tuple[Json, Json] | None:
        kept = self._cloud.find(resource.type, resource.id)
        properties = None if kept is None else self._effect(resource.urn).observe(kept)
        if properties is None:
            return None
        written = {key: item for key, item in properties.items() if key not in row(resource.type).outputs}
        inputs = prune(properties, resource.inputs) if resource.inputs else written
        return inputs, conceal(properties, inputs)

    @override
    def update(self, old: Resource, new: Json, timeout_seconds: float, *, preview: bool) -> Json:
        if not self.diff(old, new).changes:
            return old.state  # As in the published plugin, a half-made resource is left unchanged.
        kind = row(old.type)
        before = reveal(old.state)
        given = kind.settled(before, merge(kind.defaults, reveal(new)))
        computed = {key: item for key, item in before.items() if key not in old.inputs}
        effect = self._effect(old.urn)
        properties = kind.answered(merge(computed, self._completed(kind, given)[1]))
        effect.require(properties, before)
        if not preview and not has_unknown(properties):
            effect.update(before, properties)
            self._cloud.keep(old.type, old.id, properties)
        return conceal(properties, new)

    @override
    def delete(self, resource: Resource, timeout_seconds: float) -> None:
        if self._cloud.find(resource.type, resource.id) is None:
            return  # It is already gone.
        self._effect(resource.urn).delete(reveal(resource.state))
        self._cloud.remove(resource.type, resource.id)

    @override
    def invoke(self, token: str, arguments: Json) -> Json:
        project = str(arguments.get("projectId", self.config.get("project", "")))
        match token:
            case "gcp:organizations/getProject:getProject":
                number = _project_number(project)
                return {"id": f"projects/{project}", "projectId": project, "name": project, "number": number}
            case "gcp:container/getCluster:getCluster":
                places = {"project": project, "location": self._facts().get("location")} | arguments
                resource_id = fill(row(CLUSTER).id, places)
                found, missing = self._cloud.find(CLUSTER, resource_id), f"{resource_id} {self._unknown}"
                found = found and {**found, **self._seen_of(found)}
            case "gcp:compute/getSubnetwork:getSubnetwork":
                resource_id = fill(row(SUBNETWORK).id, {**self._facts(), "project": project} | arguments)
                found, missing = self._cloud.find(SUBNETWORK, resource_id), f"{resource_id} {self._unknown}"
            case "gcp:storage/getBucket:getBucket":
                resource_id = str(arguments["name"])
                found = self._cloud.find(BUCKET, resource_id)
                missing = "googleapi: Error 404: The specified bucket does not exist., notFound"
            case _:
                return super().invoke(token, arguments)
        if found is None:
            raise Refusal(missing)
        return {"id": resource_id, **_as_data_source(found)}

    @property
    def _unknown(self) -> str:
        # Before its first start, the folder of a sandbox only serves offline previews.
        return "not found" if self._authority.exists() else OFFLINE

    @property
    def _authority(self) -> Path:
        return self._site.pki / "ca.crt"

    def _seen_of(self, cluster: Json) -> Json:
        """Return what Google computes of a cluster and the program does not declare: its pools and the addresses of
        its pods."""
        pools = [
            pool for _, pool in self._cloud.every(NODE_POOL) if pool["cluster"].rpartition("/")[2] == cluster["name"]
        ]
        subnet = self._cloud.find(SUBNETWORK, str(cluster.get("subnetwork", ""))) or {}
        ranges = {each["rangeName"]: each["ipCidrRange"] for each in subnet.get("secondaryIpRanges", [])}
        of_pods = cluster.get("ipAllocationPolicy", {}).get("clusterSecondaryRangeName")
        return {
            "nodePools": [{"name": pool["name"]} for pool in pools],
            **({"clusterIpv4Cidr": ranges[of_pods]} if of_pods in ranges else {}),
        }

    def _effect(self, urn: str) -> Effect:
        return self._effects.get(type_of(urn), Effect())

    def _completed(self, kind: ResourceType, given: Json) -> tuple[str, Json]:
        """Return the id of the resource, and its properties with those that the cloud computes."""
        facts = self._facts() | given
        if "cluster" in given and "/" not in given["cluster"]:
            facts["cluster_id"] = fill("projects/{project}/locations/{location}/clusters/{cluster}", facts)
        facts.setdefault("cluster_id", given.get("cluster"))
        resource_id = str(fill(kind.id, facts))
        outputs = fill(kind.outputs, facts | {"id": resource_id})
        return resource_id, merge(outputs, given)

    def _facts(self) -> Json:
        """Return the values that templates may use besides the inputs."""
        here = self._site
        places = {key: self.config[key] for key in ("project", "region", "zone") if key in self.config}
        location = places.get("zone", places.get("region"))
        return {
            **places,
            **({"location": location} if location else {}),
            "number": _project_number(str(places.get("project", ""))),
            "address": here.address,
            "dns_endpoint": f"{here.address}:{here.api_server_port}",
            "gcs_url": here.gcs_url,
            "service_cidr": here.service_cidr,
            "ca_certificate": base64.b64encode(self._authority.read_bytes()).decode()
            if self._authority.exists()
            else "",
            "version": f"{programs.versions()['kube-apiserver']}-gke.0",
        }

    def _api_server(self) -> ApiServer:
        with self._connecting:
            if self._connected is None:
                server = administrator(self._site)
                wait_ready(server)
                self._connected = server
            return self._connected


def _as_data_source(properties: Json) -> Json:
    """Return a resource in the form of the SDK's `get_cluster`: every block as a list, under the plural of its name."""
    shown: Json = {}
    for key, item in properties.items():
        is_block = isinstance(item, dict) and key not in _MAPS
        shown |= {_plural(key): [_as_data_source(item)]} if is_block else {key: item}
    return shown


def _plural(name: str) -> str:
    if name.endswith("s"):
        return f"{name}es" if name.endswith("us") else name
    return f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"


def _project_number(project: str) -> str:
    """Return a number like Google's, the same for the same project."""
    return str(10**11 + int(hashlib.sha256(project.encode()).hexdigest(), 16) % (9 * 10**11))


if __name__ == "__main__":
    serve(GcpPlugin(site.from_environment()))

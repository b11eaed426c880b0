"""The sandbox's `kubernetes` plugin: objects in a real API server, by create, server-side apply and delete.

As in the published provider, a create never takes over an object, and an update never creates one. Updates are
server-side apply, except for CustomResourceDefinitions, which are replaced. A refused webhook call is not retried.
Reads show only what the program wrote.
"""

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, override

import yaml
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse

from infra.cluster.kubernetes import APPLY_PATCH, JSON_PATCH, ApiError, Json
from sandbox import programs
from sandbox.programs import ProgramsError
from sandbox.providers import charts, manifests
from sandbox.providers.cluster import Cluster, UnknownKindError, UnreachableError, is_path
from sandbox.providers.plugin import Diff, NotReady, Plugin, Refusal, Resource, name_of, serve
from sandbox.providers.values import UNKNOWN, Secret, changes, has_unknown, merge, prune, reveal

_CREATE_PAUSES_SECONDS = (1, 2, 4, 8, 16)
"""Pauses between attempts to create an object whose kind or namespace does not exist yet."""

_HELP = (
    "https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources"
)

_DELETE_OPTION, _DELETE_VARIABLE = "deleteUnreachable", "PULUMI_K8S_DELETE_UNREACHABLE"


@dataclass(frozen=True)
class Declared:
    """An object that exists, as its program declares it."""

    id: str
    inputs: Json
    manager: str

    def state(self, live: Json) -> Json:
        """Return the live object as the engine keeps it."""
        return manifests.remember_manager(manifests.state(live, self.inputs), self.manager)


class KubernetesPlugin(Plugin):
    """Objects of one cluster."""

    def __init__(self) -> None:
        super().__init__("pulumi_kubernetes")
        self._connected: Cluster | UnreachableError | None = None
        self._connecting = threading.Lock()

    @override
    def check_config(self, config: Json) -> Json:
        kubeconfig = config.get("kubeconfig")
        return config if kubeconfig in (None, UNKNOWN) else config | {"kubeconfig": Secret(reveal(kubeconfig))}

    @override
    def diff_config(self, old: Json, new: Json) -> list[str]:
        if "clusterIdentifier" in old and "clusterIdentifier" in new:
            return ["clusterIdentifier"] if old["clusterIdentifier"] != new["clusterIdentifier"] else []
        return ["kubeconfig"] if _clusters(old) != _clusters(new) else []

    @override
    def check(self, urn: str, old: Json, new: Json, seed: bytes) -> Json:
        metadata = dict(new.get("metadata", {}))
        if "name" not in metadata:
            metadata["name"] = old.get("metadata", {}).get("name") or f"{name_of(urn)}-{seed.hex()[:8]}"
            metadata["annotations"] = {**metadata.get("annotations", {}), "pulumi.com/autonamed": "true"}
        return manifests.with_secrets({**manifests.type_fields(urn), **new, "metadata": metadata})

    @override
    def diff(self, old: Resource, new: Json) -> Diff:
        found = tuple(changes(old.inputs, new))
        fixed = manifests.fixed_paths(new["kind"], self.config)
        replaces = frozenset(change.path for change in found if any(map(change.is_under, fixed)))
        return Diff(found, replaces, same_name=manifests.key(old.inputs) == manifests.key(new))

    @override
    def create(self, urn: str, inputs: Json, timeout_seconds: float, *, preview: bool) -> tuple[str, Json]:
        if preview:
            self._dry_run_creation(inputs)
            unknown = {key: UNKNOWN for key in manifests.SERVER_METADATA}
            return "", merge({"status": UNKNOWN, "metadata": unknown}, inputs)
        live, manager = self._create(inputs), manifests.manager_of({})
        resource_id = "/".join(filter(None, manifests.key(live)))
        return resource_id, self._awaited(Declared(resource_id, inputs, manager), live, timeout_seconds)

    @override
    def read(self, resource: Resource) -> tuple[Json, Json] | None:
        if self._is_gone_with_its_cluster(resource, "failed to read resource state due to unreachable cluster"):
            return None
        try:
            live = self._cluster().server.find(self._path(manifests.of(resource)))
        except UnknownKindError:
            return None
        if live is None:
            return None
        known = resource.inputs
        # The API server drops the namespace of a cluster-wide object, which Kueue's chart sets.
        namespace = manifests.key(known)[0] if known else None
        written = {"metadata": {"namespace": namespace}} if namespace else {}
        inputs = manifests.with_secrets(
            prune(merge(written, live), known, reveal(resource.state)) if known else manifests.as_written(live)
        )
        return inputs, manifests.remember_manager(manifests.state(live, inputs), manifests.manager_of(resource.state))

    @override
    def update(self, old: Resource, new: Json, timeout_seconds: float, *, preview: bool) -> Json:
        if preview and (has_unknown(new) or not self._is_served(new)):
            return merge(old.state, new)
        declared = Declared(old.id, new, manifests.manager_of(old.state))
        try:
            live = self._update(declared, preview=preview)
        except ApiError as error:
            if preview and error.status == 403:
                return merge(old.state, new)
            raise self._refused(old.urn, declared, error) from None
        return declared.state(live) if preview else self._awaited(declared, live, timeout_seconds)

    @override
    def delete(self, resource: Resource, timeout_seconds: float) -> None:
        if self._is_gone_with_its_cluster(resource, "configured Kubernetes cluster is unreachable"):
            return
        server, manifest = self._cluster().server, manifests.of(resource)
        try:
            path = self._path(manifest)
        except UnknownKindError:
            return
        server.delete(path, {"kind": "DeleteOptions", "propagationPolicy": "Foreground"})
        timeout_seconds = timeout_seconds or manifests.DEFAULT_TIMEOUT_SECONDS
        manifests.poll(lambda: manifests.still_there(server.find(path), resource.state), timeout_seconds)

    @override
    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        if request.resource_type != charts.CHART:
            return await super().construct(request)
        if reason := await asyncio.to_thread(self._unreachable):
            raise Refusal(reason)
        try:
            return await charts.construct(request, programs.found(programs.ENGINE), self.version)
        except ProgramsError as error:
            raise Refusal(str(error)) from None

    def _cluster(self) -> Cluster:
        with self._connecting:
            if self._connected is None:
                kubeconfig = reveal(self.config.get("kubeconfig", "~/.kube/config"))
                try:
                    self._connected = Cluster.connect(kubeconfig, self.config.get("context"))
                except UnreachableError as error:
                    # The connection is tried once for all objects, as in the published provider.
                    self._connected = error
        if isinstance(self._connected, UnreachableError):
            raise UnreachableError(str(self._connected))
        return self._connected

    def _unreachable(self) -> str:
        """Return why the cluster is unreachable; empty when it is reachable."""
        try:
            self._cluster()
        except UnreachableError as error:
            return str(error)
        return ""

    def _is_gone_with_its_cluster(self, resource: Resource, complaint: str) -> bool:
        """Return whether the object leaves the state because its cluster is unreachable.

        Raises Refusal if the cluster is unreachable, and the option for this is not set.
        """
        if not (reason := self._unreachable()):
            return False
        self.warn(resource.urn, reason)
        asked = self.config.get(_DELETE_OPTION, os.environ.get(_DELETE_VARIABLE, "false"))
        if asked not in (True, "true"):
            raise Refusal(
                f"{complaint}. If the cluster was deleted, you can remove this resource from Pulumi state by rerunning"
                f' the operation with the {_DELETE_VARIABLE} environment variable set to "true"'
            )
        self.warn(resource.urn, f"`{_DELETE_OPTION}` is set: the object leaves the state, and may still exist")
        return True

    def _path(self, manifest: Json, *, collection: bool = False) -> str:
        kind = self._cluster().kind(manifest["apiVersion"], manifest["kind"])
        namespace, name = manifests.key(manifest)
        return kind.path(namespace or self.config.get("namespace", "default"), "" if collection else name)

    def _is_served(self, manifest: Json) -> bool:
        """Return whether the API server is reachable and serves the object's kind."""
        try:
            self._path(manifest)
        except (UnknownKindError, UnreachableError):
            return False
        return True

    def _create(self, inputs: Json) -> Json:
        """Create the object, with retries while its kind or namespace does not exist."""
        for pause in _CREATE_PAUSES_SECONDS:
            try:
                return self._create_once(inputs)
            except (UnknownKindError, ApiError) as error:
                if isinstance(error, ApiError) and error.status != 404:
                    raise
                time.sleep(pause)
        return self._create_once(inputs)

    def _create_once(self, inputs: Json, **query: str) -> Json:
        path, query = self._path(inputs, collection=True), {"fieldManager": manifests.CREATOR, **query}
        return self._cluster().server.request("POST", path, reveal(inputs), query)

    def _dry_run_creation(self, inputs: Json) -> None:
        """Let the API server validate the object; whatever is missing because it is created later is tolerated."""
        if has_unknown(inputs) or not self._is_served(inputs):
            return
        try:
            self._create_once(inputs, dryRun="All")
        except ApiError as error:
            if error.status not in (403, 404) and error.reason != "AlreadyExists":
                raise

    def _update(self, declared: Declared, *, preview: bool) -> Json:
        """Return the live object after the update, or as it would be in a preview.

        Raises ApiError if the object does not exist, or the API server refuses.
        """
        server, inputs, path = self._cluster().server, declared.inputs, self._path(declared.inputs)
        query = {"fieldManager": declared.manager} | ({"dryRun": "All"} if preview else {})
        live = server.request("GET", path)
        if inputs["kind"] == "CustomResourceDefinition":
            version = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}}
            return server.request("PUT", path, merge(reveal(inputs), version), query)
        taken = None if preview else manifests.taken_over(live, declared.manager)
        if taken:
            # Refused if the object has changed since.
            values = {"resourceVersion": live["metadata"]["resourceVersion"], "managedFields": taken}
            patch = [{"op": "replace", "path": f"/metadata/{field}", "value": item} for field, item in values.items()]
            live = server.request("PATCH", path, patch, content_type=JSON_PATCH)
        force = {"force": str(manifests.is_forced(inputs, live, preview=preview)).lower()}
        try:
            return server.request("PATCH", path, reveal(inputs), query | force, APPLY_PATCH)
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            message = f"server-side apply field conflict detected, see {_HELP} for troubleshooting help\n"
            message += f'The resource managed by field manager "{declared.manager}" had an apply conflict: {error}'
            raise ApiError(error.status, error.reason, message) from None

    def _refused(self, urn: str, declared: Declared, error: ApiError) -> Refusal:
        """Return the error for a failed update; if the object exists, the engine retries the update next time."""
        live = self._cluster().server.find(self._path(declared.inputs))
        if live is None:
            return Refusal(f'update of resource "{urn}" failed: {error}\nunable to get cluster state: {error}')
        message = f'the Kubernetes API server reported that "{declared.id}" failed to fully initialize or become live'
        return NotReady(f"{message}: {error}", declared.id, declared.state(live))

    def _awaited(self, declared: Declared, live: Json, timeout_seconds: float) -> Json:
        """Return the state once the object meets the condition that its inputs wait for."""
        inputs = declared.inputs
        unmet = manifests.requirement(reveal(inputs))
        if unmet is None:
            return declared.state(live)
        newest, path = live, self._path(inputs)

        def lack() -> str:
            nonlocal newest
            newest = self._cluster().server.request("GET", path)
            return unmet(newest)

        try:
            manifests.poll(lack, timeout_seconds or manifests.DEFAULT_TIMEOUT_SECONDS)
        except (Refusal, ApiError) as error:
            message = f"{inputs['kind']} {declared.id} exists but is not ready: {error}"
            raise NotReady(message, declared.id, declared.state(newest)) from None
        return declared.state(newest)


def _clusters(config: Json) -> Any:
    kubeconfig = reveal(config.get("kubeconfig", UNKNOWN))
    return kubeconfig if is_path(kubeconfig) else yaml.safe_load(kubeconfig)["clusters"]


if __name__ == "__main__":
    serve(KubernetesPlugin())

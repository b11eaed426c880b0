"""The stand-in `kubernetes` plugin: objects in a real API server, by create, server-side apply and delete.

Follows the published provider: objects are created, never taken over; updates are server-side apply,
forced only where an annotation says so; a refused webhook call is not tried again; reads show only
what the program wrote.
"""

import os
import threading
import time
from typing import Any, override

import yaml
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse

from infra.api_server import APPLY_PATCH, ApiError
from sandbox import programs
from sandbox.catalog import ProgramsError
from sandbox.providers import awaiting, charts, manifests
from sandbox.providers.cluster import Cluster, UnknownKindError, UnreachableError, is_path
from sandbox.providers.plugin import Diff, NotReady, Plugin, Refusal, Resource, name_of, serve
from sandbox.providers.values import UNKNOWN, Object, Secret, changes, has_unknown, merged, pruned, reveal

FIELD_MANAGER = "pulumi-kubernetes"

_CREATE_PAUSES_SECONDS = (1, 2, 4, 8, 16)
"""Between attempts to create an object whose kind or namespace is not there yet."""

_PATCH_FORCE = "pulumi.com/patchForce"

_DELETE_OPTION, _DELETE_VARIABLE = "deleteUnreachable", "PULUMI_K8S_DELETE_UNREACHABLE"


class KubernetesPlugin(Plugin):
    """Objects of one cluster."""

    def __init__(self) -> None:
        super().__init__("pulumi_kubernetes")
        self._connected: Cluster | UnreachableError | None = None
        self._connecting = threading.Lock()

    @override
    def check_config(self, config: Object) -> Object:
        kubeconfig = config.get("kubeconfig")
        return config if kubeconfig in (None, UNKNOWN) else config | {"kubeconfig": Secret(reveal(kubeconfig))}

    @override
    def diff_config(self, old: Object, new: Object) -> list[str]:
        if "clusterIdentifier" in old and "clusterIdentifier" in new:
            return ["clusterIdentifier"] if old["clusterIdentifier"] != new["clusterIdentifier"] else []
        return ["kubeconfig"] if _clusters(old) != _clusters(new) else []

    @override
    def check(self, urn: str, old: Object, new: Object, seed: bytes) -> Object:
        metadata = dict(new.get("metadata", {}))
        if "name" not in metadata:
            metadata["name"] = old.get("metadata", {}).get("name") or f"{name_of(urn)}-{seed.hex()[:8]}"
            metadata["annotations"] = {**metadata.get("annotations", {}), "pulumi.com/autonamed": "true"}
        return manifests.with_secrets({**manifests.type_fields(urn), **new, "metadata": metadata})

    @override
    def diff(self, old: Resource, new: Object) -> Diff:
        found = tuple(changes(old.inputs, new))
        fixed = manifests.fixed_paths(new["kind"], self.config)
        replaces = frozenset(change.path for change in found if any(map(change.is_under, fixed)))
        return Diff(found, replaces, same_name=manifests.key(old.inputs) == manifests.key(new))

    @override
    def create(self, urn: str, inputs: Object, timeout_seconds: float, *, preview: bool) -> tuple[str, Object]:
        if preview:
            self._rehearse_creation(inputs)
            unknown = {key: UNKNOWN for key in manifests.SERVER_METADATA}
            return "", merged({"status": UNKNOWN, "metadata": unknown}, inputs)
        live = self._create(inputs)
        resource_id = "/".join(filter(None, manifests.key(live)))
        return resource_id, self._awaited(resource_id, inputs, live, timeout_seconds)

    @override
    def read(self, resource: Resource) -> tuple[Object, Object] | None:
        if self._is_gone_with_its_cluster(resource, "failed to read resource state due to unreachable cluster"):
            return None
        try:
            live = self._cluster().server.find(self._path(manifests.of(resource)))
        except UnknownKindError:
            return None
        if live is None:
            return None
        known = resource.inputs
        # A namespace in a cluster-wide object, as Kueue's chart has them, is dropped by the API server.
        namespace = manifests.key(known)[0] if known else None
        written = {"metadata": {"namespace": namespace}} if namespace else {}
        inputs = manifests.with_secrets(
            pruned(merged(written, live), known, reveal(resource.state)) if known else manifests.as_written(live)
        )
        return inputs, manifests.state(live, inputs)

    @override
    def update(self, old: Resource, new: Object, timeout_seconds: float, *, preview: bool) -> Object:
        if preview and (has_unknown(new) or self._unreachable()):
            return merged(old.state, new)
        force = new["metadata"].get("annotations", {}).get(_PATCH_FORCE, "false")
        query = {"fieldManager": FIELD_MANAGER, "force": force} | ({"dryRun": "All"} if preview else {})
        try:
            live = self._cluster().server.request("PATCH", self._path(new), reveal(new), query, APPLY_PATCH)
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            raise Refusal(f"Server-Side Apply field conflict detected: {error}") from None
        return manifests.state(live, new) if preview else self._awaited(old.id, new, live, timeout_seconds)

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
        timeout_seconds = awaiting.timeout_of(manifest, timeout_seconds)
        awaiting.poll(lambda: manifests.still_there(server.find(path), resource.state), timeout_seconds)

    @override
    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        if request.resource_type != charts.CHART:
            return await super().construct(request)
        try:
            return await charts.construct(request, programs.found(), self.version)
        except ProgramsError as error:
            raise Refusal(str(error)) from None

    def _cluster(self) -> Cluster:
        with self._connecting:
            if self._connected is None:
                kubeconfig = reveal(self.config.get("kubeconfig", "~/.kube/config"))
                try:
                    self._connected = Cluster.connect(kubeconfig, self.config.get("context"))
                except UnreachableError as error:
                    # Asked once for all objects, as the published provider does.
                    self._connected = error
        if isinstance(self._connected, UnreachableError):
            raise UnreachableError(str(self._connected))
        return self._connected

    def _unreachable(self) -> str:
        """Why the cluster cannot be reached; empty when it can."""
        try:
            self._cluster()
        except UnreachableError as error:
            return str(error)
        return ""

    def _is_gone_with_its_cluster(self, resource: Resource, complaint: str) -> bool:
        """Whether the object is to leave the state because its cluster does not answer.

        Raises:
            Refusal: the cluster does not answer, and nobody asked for that.
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
        self.warn(resource.urn, f"`{_DELETE_OPTION}` is set: the object leaves the state, whatever becomes of it")
        return True

    def _path(self, manifest: Object, *, collection: bool = False) -> str:
        kind = self._cluster().kind(manifest["apiVersion"], manifest["kind"])
        namespace, name = manifests.key(manifest)
        return kind.path(namespace or self.config.get("namespace", "default"), "" if collection else name)

    def _create(self, inputs: Object) -> Object:
        """Create the object, waiting a while for its kind or namespace."""
        for pause in _CREATE_PAUSES_SECONDS:
            try:
                return self._create_once(inputs)
            except (UnknownKindError, ApiError) as error:
                if isinstance(error, ApiError) and error.status != 404:
                    raise
                time.sleep(pause)
        return self._create_once(inputs)

    def _create_once(self, inputs: Object) -> Object:
        server, path = self._cluster().server, self._path(inputs)
        if server.find(path) is not None:
            plural, name = path.rsplit("/", 2)[1:]
            raise Refusal(f'{plural} "{name}" already exists; delete it, or import it into the stack')
        # By server-side apply, so that later applies own the same fields.
        return server.request("PATCH", path, reveal(inputs), {"fieldManager": FIELD_MANAGER}, APPLY_PATCH)

    def _rehearse_creation(self, inputs: Object) -> None:
        """Let the API server judge the object; what is missing only because it comes later is tolerated."""
        if has_unknown(inputs) or self._unreachable():
            return
        try:
            path = self._path(inputs, collection=True)
            query = {"dryRun": "All", "fieldManager": FIELD_MANAGER}
            self._cluster().server.request("POST", path, reveal(inputs), query)
        except UnknownKindError:
            return
        except ApiError as error:
            if error.status != 404 and error.reason != "AlreadyExists":
                raise

    def _awaited(self, resource_id: str, inputs: Object, live: Object, timeout_seconds: float) -> Object:
        """The state once the object is what its inputs ask to wait for."""
        unmet = awaiting.requirement(reveal(inputs))
        if unmet is None:
            return manifests.state(live, inputs)
        newest, path = live, self._path(inputs)

        def lack() -> str:
            nonlocal newest
            newest = self._cluster().server.request("GET", path)
            return unmet(newest)

        try:
            awaiting.poll(lack, awaiting.timeout_of(inputs, timeout_seconds))
        except (Refusal, ApiError) as error:
            message = f"{inputs['kind']} {resource_id} exists but is not ready: {error}"
            raise NotReady(message, resource_id, manifests.state(newest, inputs)) from None
        return manifests.state(newest, inputs)


def _clusters(config: Object) -> Any:
    kubeconfig = reveal(config.get("kubeconfig", UNKNOWN))
    return kubeconfig if is_path(kubeconfig) else yaml.safe_load(kubeconfig)["clusters"]


if __name__ == "__main__":
    serve(KubernetesPlugin())

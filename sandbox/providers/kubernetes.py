"""The stand-in `kubernetes` plugin: objects in a real API server, by create, server-side apply and delete.

Follows the published provider: objects are created, never taken over; updates are server-side apply
without force; a refused webhook call is not tried again; reads show only what the program wrote.
"""

import threading
import time
from typing import Any, cast

import yaml
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse

from sandbox import programs
from sandbox.providers import awaiting, charts
from sandbox.providers.api_server import ApiError, ApiServer, UnknownKindError
from sandbox.providers.plugin import Diff, NotReady, Plugin, Refusal, Resource, name_of, serve, type_of
from sandbox.providers.values import UNKNOWN, Object, Secret, changes, conceal, has_unknown, merged, pruned, reveal

FIELD_MANAGER = "pulumi-kubernetes"

_CREATE_PAUSES_SECONDS = (1, 2, 4, 8, 16)
"""Between attempts to create an object whose kind or namespace is not there yet."""

_IMMUTABLE = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("data", "stringData", "type"),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template", "spec.completionMode"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
}
"""Paths whose change needs a new object. Only built-in kinds: of others the published provider knows none."""

_SECRET_FIELDS = ("data", "stringData")
_SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


class KubernetesPlugin(Plugin):
    """Objects of one cluster."""

    def __init__(self) -> None:
        super().__init__("pulumi_kubernetes")
        self._config: Object = {}
        self._api: ApiServer | None = None
        self._api_lock = threading.Lock()

    def check_config(self, config: Object) -> Object:
        kubeconfig = config.get("kubeconfig")
        return config if kubeconfig in (None, UNKNOWN) else config | {"kubeconfig": Secret(reveal(kubeconfig))}

    def diff_config(self, old: Object, new: Object) -> list[str]:
        if "clusterIdentifier" in old and "clusterIdentifier" in new:
            return ["clusterIdentifier"] if old["clusterIdentifier"] != new["clusterIdentifier"] else []
        return ["kubeconfig"] if _clusters(old) != _clusters(new) else []

    def configure(self, config: Object) -> None:
        self._config = cast(Object, reveal(config))

    def check(self, urn: str, old: Object, new: Object, seed: bytes) -> Object:
        metadata = {**new.get("metadata", {})}
        if "name" not in metadata and "generateName" not in metadata:
            known = old.get("metadata", {}).get("name")
            metadata["name"] = known or f"{name_of(urn)}-{seed.hex()[:8]}"
            metadata["annotations"] = {**metadata.get("annotations", {}), "pulumi.com/autonamed": "true"}
        return _with_secrets({**_type_fields(urn), **new, "metadata": metadata})

    def diff(self, old: Resource, new: Object) -> Diff:
        found = tuple(changes(old.inputs, new))
        fixed = ("kind", "metadata.name", "metadata.namespace", *_IMMUTABLE.get(new["kind"], ()))
        replaces = frozenset(change.path for change in found if _is_under(change.path, fixed))
        same_name = _key(old.inputs) == _key(new)
        return Diff(found, replaces, delete_before_replace=bool(replaces) and same_name)

    def create(self, urn: str, inputs: Object, timeout_seconds: float, *, preview: bool) -> tuple[str, Object]:
        if preview:
            self._rehearse_creation(inputs)
            return "", _expected(inputs)
        live = self._create(inputs)
        resource_id = "/".join(filter(None, _key(live)))
        return resource_id, self._awaited(resource_id, inputs, live, timeout_seconds)

    def read(self, resource: Resource) -> tuple[Object, Object] | None:
        wanted = merged(_identity(resource), resource.inputs)
        try:
            live = self._connection().find(self._path(wanted))
        except UnknownKindError:
            return None
        if live is None:
            return None
        inputs = pruned(live, resource.inputs, reveal(resource.state)) if resource.inputs else _as_written(live)
        inputs = _with_secrets(inputs)
        return inputs, _state(live, inputs)

    def update(self, old: Resource, new: Object, timeout_seconds: float, *, preview: bool) -> Object:
        if preview and has_unknown(new):
            return merged(old.state, new)
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if preview else {})}
        if awaiting.annotations_of(new).get("pulumi.com/patchForce") == "true":
            query["force"] = "true"
        try:
            live = self._connection().request(
                "PATCH", self._path(new), cast(Object, reveal(new)), query, "application/apply-patch+yaml"
            )
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            raise Refusal(f"Server-Side Apply field conflict detected: {error}") from None
        return _state(live, new) if preview else self._awaited(old.id, new, live, timeout_seconds)

    def delete(self, resource: Resource, timeout_seconds: float) -> None:
        api, manifest = self._connection(), merged(_identity(resource), resource.inputs)
        policy = awaiting.annotations_of(manifest).get("pulumi.com/deletionPropagationPolicy", "foreground")
        try:
            path = self._path(manifest)
            api.request("DELETE", path, {"kind": "DeleteOptions", "propagationPolicy": policy.title()})
        except (UnknownKindError, ApiError) as error:
            if isinstance(error, ApiError) and error.status != 404:
                raise
            return
        awaiting.poll(
            lambda: _still_there(api.find(path), resource.state), awaiting.timeout_of(manifest, timeout_seconds)
        )

    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        if request.resource_type != charts.CHART:
            return await super().construct(request)
        try:
            return await charts.construct(request, programs.found(), self.version)
        except programs.ProgramsError as error:
            raise Refusal(str(error)) from None

    def _connection(self) -> ApiServer:
        with self._api_lock:
            if self._api is None:
                kubeconfig = self._config.get("kubeconfig", "~/.kube/config")
                api = ApiServer(kubeconfig, self._config.get("context"))
                api.wait_ready()
                self._api = api
            return self._api

    def _path(self, manifest: Object, *, collection: bool = False) -> str:
        kind = self._connection().kind(manifest["apiVersion"], manifest["kind"])
        namespace, name = _key(manifest)
        return kind.path(namespace or self._config.get("namespace", "default"), "" if collection else name)

    def _create(self, inputs: Object) -> Object:
        """Create by server-side apply, so that later applies own the same fields."""
        for pause in (*_CREATE_PAUSES_SECONDS, None):
            try:
                return self._create_once(inputs)
            except (UnknownKindError, ApiError) as error:
                absent = isinstance(error, UnknownKindError) or error.status == 404
                if not absent or pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _create_once(self, inputs: Object) -> Object:
        api, path = self._connection(), self._path(inputs)
        if api.find(path) is not None:
            name = inputs["metadata"]["name"]
            message = f'{path.rsplit("/", 2)[1]} "{name}" already exists; delete it, or import it into the stack'
            raise ApiError(409, "AlreadyExists", message)
        body = cast(Object, reveal(inputs))
        return api.request("PATCH", path, body, {"fieldManager": FIELD_MANAGER}, "application/apply-patch+yaml")

    def _rehearse_creation(self, inputs: Object) -> None:
        """Let the API server judge the object; what is missing only because it comes later is tolerated."""
        if has_unknown(inputs):
            return
        query = {"dryRun": "All", "fieldManager": FIELD_MANAGER}
        try:
            path = self._path(inputs, collection=True)
            self._connection().request("POST", path, cast(Object, reveal(inputs)), query)
        except UnknownKindError:
            return
        except ApiError as error:
            if error.status != 404 and error.reason != "AlreadyExists":
                raise

    def _awaited(self, resource_id: str, inputs: Object, live: Object, timeout_seconds: float) -> Object:
        unmet = awaiting.requirement(cast(Object, reveal(inputs)))
        if unmet is None:
            return _state(live, inputs)
        newest = [live]
        path = self._path(inputs)

        def lack() -> str:
            found = self._connection().find(path)
            if found is None:
                raise Refusal(f"{resource_id} was deleted while it was awaited")
            newest[0] = found
            return unmet(found)

        try:
            awaiting.poll(lack, awaiting.timeout_of(inputs, timeout_seconds))
        except Refusal as error:
            message = f"{inputs['kind']} {resource_id} was created but is not ready: {error}"
            raise NotReady(message, resource_id, _state(newest[0], inputs)) from None
        return _state(newest[0], inputs)


def _key(manifest: Object) -> tuple[str | None, str]:
    metadata = manifest["metadata"]
    return metadata.get("namespace"), metadata["name"]


def _identity(resource: Resource) -> Object:
    """What id and type say of an object; all there is of one that is being imported."""
    namespace, _, name = resource.id.rpartition("/")
    return {**_type_fields(resource.urn), "metadata": {"name": name, **({"namespace": namespace} if namespace else {})}}


def _type_fields(urn: str) -> Object:
    _, api_version, kind = type_of(urn).split(":")
    return {"apiVersion": api_version.removeprefix("core/"), "kind": kind}


def _is_under(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")) for prefix in prefixes)


def _with_secrets(inputs: Object) -> Object:
    if inputs["kind"] != "Secret":
        return inputs
    return inputs | {field: Secret(reveal(inputs[field])) for field in _SECRET_FIELDS if field in inputs}


def _state(live: Object, inputs: Object) -> Object:
    """What the engine keeps: the whole object, less the API server's bookkeeping."""
    metadata = {key: item for key, item in live["metadata"].items() if key != "managedFields"}
    return cast(Object, conceal(_with_secrets({**live, "metadata": metadata}), inputs))


def _as_written(live: Object) -> Object:
    metadata = {key: item for key, item in live["metadata"].items() if key not in _SERVER_METADATA}
    return {**{key: item for key, item in live.items() if key != "status"}, "metadata": metadata}


def _expected(inputs: Object) -> Object:
    """A created object as far as a preview can know it."""
    unknown = {key: UNKNOWN for key in ("uid", "resourceVersion", "creationTimestamp", "generation")}
    return merged({"status": UNKNOWN, "metadata": unknown}, inputs)


def _still_there(live: Object | None, state: Object) -> str:
    if live is None or live["metadata"]["uid"] != state.get("metadata", {}).get("uid", live["metadata"]["uid"]):
        return ""
    finalizers = live["metadata"].get("finalizers") or []
    held = f"held by finalizers {', '.join(finalizers)}" if finalizers else "still being deleted"
    return f"{live['kind']} {live['metadata']['name']} is {held}"


def _clusters(config: Object) -> Any:
    kubeconfig = reveal(config.get("kubeconfig"))
    if kubeconfig in (None, UNKNOWN) or "\n" not in kubeconfig and kubeconfig[:1] != "{":
        return kubeconfig
    content = yaml.safe_load(kubeconfig)
    return content.get("clusters")


if __name__ == "__main__":
    serve(KubernetesPlugin())

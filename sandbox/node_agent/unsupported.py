"""Finds what the node agent does not support in a pod, so that it is refused before any container starts."""

from collections.abc import Iterator

from infra.cluster.kubernetes import Json
from sandbox.node_agent.pod import Pod
from sandbox.node_agent.probes import ACTIONS

_POD_FIELDS = ("dnsConfig", "hostAliases", "readinessGates", "resourceClaims", "setHostnameAsFQDN")
_CONTAINER_FIELDS = ("restartPolicyRules", "volumeDevices")
_MOUNT_FIELDS = ("mountPropagation", "recursiveReadOnly", "subPathExpr")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_VALUES = {"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}
_SOURCES = {"configMap", "secret", "downwardAPI", "serviceAccountToken"}
_VOLUMES = {"emptyDir", "configMap", "secret", "downwardAPI", "projected"}


def unsupported(pod: Pod) -> str | None:
    """Return a sentence that names the fields of the pod that are not supported; None if all are."""
    found = [*_of_pod(pod), *(part for container in pod.all_containers for part in _of_container(container))]
    if not found:
        return None
    return f"The sandbox does not run this pod because it does not support {', '.join(found)}."


def _of_pod(pod: Pod) -> Iterator[str]:
    yield from (name for name in _POD_FIELDS if pod.spec.get(name))
    for volume in pod.spec.get("volumes", []):
        kinds = volume.keys() - {"name"} - _VOLUMES
        for source in volume.get("projected", {}).get("sources", []):
            kinds |= source.keys() - _SOURCES
        if kinds:
            yield f"volume {volume['name']!r} of kind {' and '.join(sorted(kinds))}"


def _of_container(container: Json) -> Iterator[str]:
    of = f"of container {container['name']!r}"
    if not container.get("command"):
        yield f"the entry point {of}, because images are not run here and it has no command"
    yield from (f"{name} {of}" for name in _CONTAINER_FIELDS if container.get(name))
    for mount in container.get("volumeMounts", []):
        yield from (f"{name} of mount {mount['mountPath']!r} {of}" for name in _MOUNT_FIELDS if _asks(mount, name))
    for variable in container.get("env", []):
        for kind in (variable.get("valueFrom") or {}).keys() - _VALUES:
            yield f"{kind} of variable {variable['name']!r} {of}"
    lifecycle: Json = container.get("lifecycle", {})
    if "stopSignal" in lifecycle:
        yield f"stopSignal {of}"
    checks = {name: container[name] for name in _PROBES if name in container}
    hooks = {name: lifecycle[name] for name in ("postStart", "preStop") if name in lifecycle}
    yield from (f"the action of {name} {of}" for name, check in (checks | hooks).items() if not ACTIONS & check.keys())


def _asks(mount: Json, field: str) -> bool:
    return mount.get(field) not in (None, "None", "Disabled")

"""A container's environment, command and volumes: references resolved, `$(VAR)` expanded.

Pure except for the lookup of ConfigMaps and Secrets that the caller passes in, and for the files of volumes. Variables
are set in kubelet's order: image, device plugin, then the pod's own, which take precedence. `unsupported` has refused
what is not supported here.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.cluster.kubernetes import Json
from sandbox.node_agent.pod import Pod

type Lookup = Callable[[str, str], Mapping[str, bytes] | None]
"""Data of the object of a kind (`configmaps` or `secrets`) and name, or None if there is no such object."""

type Token = Callable[[Json], str]
"""A token of the pod's service account, bound to the pod, for a projected volume's source."""

type _File = tuple[bytes, int]
"""Content and mode."""

_MODE = 0o644
"""Kubernetes' default mode of a file in a volume."""

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_MAP_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where admission mounts a token into every pod. It is omitted, because pods here have no access to the API."""
_LEFT_OUT = (SERVICE_ACCOUNT_PATH, "/tmp")
"""A volume at /tmp is left out because checkout and sandbox may be below it. `container` mounts the pod's own folder
for temporary files elsewhere."""


class ConfigError(RuntimeError):
    """Raised when a container cannot be created yet as its pod declares it."""

    reason = "CreateContainerConfigError"
    """Kubelet's name for it."""
    wants = "configuration"


class ImageError(ConfigError):
    """Raised when the image of a container cannot be pulled."""

    reason, wants = "ImagePullBackOff", "image"


@dataclass(frozen=True)
class Surroundings:
    """A pod, and the objects that its references can point to."""

    pod: Pod
    node: Json
    address: str
    host_address: str
    lookup: Lookup
    token: Token


@dataclass(frozen=True)
class Mount:
    """One bind mount inside a container's mount namespace."""

    source: Path
    target: str
    read_only: bool


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`. An unknown name is left unchanged."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def declared_variables(container: Json, around: Surroundings, injected: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the container's specification, over those that a webhook `injected` into it.

    Raises ConfigError if a required reference points to nothing.
    """
    variables = dict(injected)
    for source in container.get("envFrom", []):
        for key, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if reference := source.get(key):
                data = _object_data(kind, reference["name"], reference, around.lookup)
                variables |= {source.get("prefix", "") + name: _text(value) for name, value in data.items()}
    for entry in container.get("env", []):
        value = _value(entry, container, around, variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def command_line(container: Json, variables: Mapping[str, str]) -> list[str]:
    """Return the program and arguments of the container."""
    return [expand(word, variables) for word in (*container["command"], *container.get("args", []))]


def _field_value(path: str, around: Surroundings) -> str:
    pod = around.pod
    if entry := _MAP_ENTRY.fullmatch(path):
        return (pod.metadata.get(entry[1]) or {}).get(entry[2], "")
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _entries(pod.labels),
        "metadata.annotations": _entries(pod.metadata.get("annotations") or {}),
        "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        "status.podIP": around.address,
        "status.podIPs": around.address,
        "status.hostIP": around.host_address,
        "status.hostIPs": around.host_address,
    }
    return fields[path]


def _entries(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(values.items()))


def _resource_value(reference: Json, container: Json, node: Json) -> str:
    """Return the container's own amount; without a limit, what the node can give."""
    from kubernetes.utils.quantity import parse_quantity

    table, _, resource = reference["resource"].partition(".")
    amount = container.get("resources", {}).get(table, {}).get(resource)
    if amount is None:
        amount = node["status"]["allocatable"].get(resource, "0") if table == "limits" else "0"
    divisor = parse_quantity(reference.get("divisor") or "1") or 1
    return str(math.ceil(parse_quantity(amount) / divisor))


def container_mounts(container: Json, around: Surroundings, folder: Path) -> list[Mount]:
    """Return the mounts of a container. Volumes are folders in `folder`, made when they are first used.

    Contents are written once: a later change of a ConfigMap is not seen, and tokens are not renewed. `medium: Memory`
    is a folder like any other. Raises ConfigError if a volume's source is missing.
    """
    volumes = {volume["name"]: volume for volume in around.pod.spec.get("volumes", [])}
    mounts: list[Mount] = []
    for mount in container.get("volumeMounts", []):
        target = mount["mountPath"]
        if target in _LEFT_OUT:
            continue
        source = _made(volumes[mount["name"]], around, folder / mount["name"])
        if part := mount.get("subPath"):
            source = _inside(source, part)
            if not source.exists():
                source.mkdir(parents=True)
        mounts.append(Mount(source, target, mount.get("readOnly", False)))
    return mounts


def _value(entry: Json, container: Json, around: Surroundings, variables: Mapping[str, str]) -> str | None:
    origin: Json | None = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value", ""), variables)
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if reference := origin.get(key):
            return _key_value(kind, reference, around.lookup)
    return _own_value(origin, container, around)


def _own_value(origin: Json, container: Json, around: Surroundings) -> str:
    if reference := origin.get("fieldRef"):
        return _field_value(reference["fieldPath"], around)
    return _resource_value(origin["resourceFieldRef"], container, around.node)


def _key_value(kind: str, reference: Json, lookup: Lookup) -> str | None:
    data = _object_data(kind, reference["name"], reference, lookup)
    if reference["key"] in data:
        return _text(data[reference["key"]])
    if reference.get("optional"):
        return None
    raise ConfigError(f"couldn't find key {reference['key']!r} in {kind.removesuffix('s')} {reference['name']!r}")


def _text(value: bytes) -> str:
    # Converted back to the same bytes when the process starts.
    return value.decode(errors="surrogateescape")


def _object_data(kind: str, name: str, reference: Json, lookup: Lookup) -> Mapping[str, bytes]:
    """Return the data of the ConfigMap or Secret; empty if it does not exist and is optional."""
    data = lookup(kind, name)
    if data is None and not reference.get("optional"):
        raise ConfigError(f"{kind.removesuffix('s')} {name!r} not found")
    return data or {}


def _made(volume: Json, around: Surroundings, folder: Path) -> Path:
    if not folder.exists():
        files = _files(volume, around, _MODE)
        folder.mkdir(parents=True)
        for name, (content, mode) in files.items():
            path = _inside(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
    return folder


def _inside(folder: Path, relative: str) -> Path:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigError(f"path {relative!r} leaves its volume; use a path below it")
    return path


def _files(volume: Json, around: Surroundings, mode: int) -> dict[str, _File]:
    """Return the files of a volume, or of one source of a projected volume."""
    if projected := volume.get("projected"):
        files: dict[str, _File] = {}
        for source in projected.get("sources", []):
            files |= _files(source, around, projected.get("defaultMode", mode))
        return files
    for key, kind in (("configMap", "configmaps"), ("secret", "secrets")):
        if reference := volume.get(key):
            name = reference.get("name") or reference["secretName"]
            data = _object_data(kind, name, reference, around.lookup)
            return _select(data, reference, reference.get("defaultMode", mode))
    if source := volume.get("serviceAccountToken"):
        return {source["path"]: (around.token(source).encode(), mode)}
    if downward := volume.get("downwardAPI"):
        default = downward.get("defaultMode", mode)
        return {
            item["path"]: (_downward(item, around).encode(), item.get("mode", default))
            for item in downward.get("items", [])
        }
    return {}


def _downward(item: Json, around: Surroundings) -> str:
    name = item.get("resourceFieldRef", {}).get("containerName")
    container: Json = next((each for each in around.pod.all_containers if each["name"] == name), {})
    return _own_value(item, container, around)


def _select(data: Mapping[str, bytes], reference: Json, mode: int) -> dict[str, _File]:
    items: list[Json] | None = reference.get("items")
    if items is None:
        return {key: (content, mode) for key, content in data.items()}
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not reference.get("optional"):
        raise ConfigError(f"references non-existent config key: {', '.join(missing)}")
    return {item["path"]: (data[item["key"]], item.get("mode", mode)) for item in items if item["key"] in data}

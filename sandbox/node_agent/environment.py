"""A container's environment, command and volumes: references resolved, `$(VAR)` expanded.

Pure except for the lookup of ConfigMaps and Secrets that the caller passes in, and for the files of volumes. Variables
are set in kubelet's order: image, device plugin, then the pod's own, which take precedence. Only the references and
volumes that the program of this repository declares are supported.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.kubernetes import Json
from infra.names import RAM_DISK_DRIVER
from sandbox.node_agent.pod import ConfigError, Pod

type Lookup = Callable[[str, str], Mapping[str, bytes] | None]
"""Data of the object of a kind (`configmaps` or `secrets`) and name, or None if there is no such object."""

type Token = Callable[[Json], str]
"""A token of the pod's service account, bound to the pod, for a projected volume's source."""

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_MAP_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where admission mounts a token into every pod. It is omitted, because pods here have no access to the API."""
_LEFT_OUT = (SERVICE_ACCOUNT_PATH, "/tmp")
"""A volume at /tmp is left out because checkout and sandbox may be below it. `container` mounts the pod's own folder
for temporary files elsewhere."""


@dataclass(frozen=True)
class Surroundings:
    """A pod, and the objects that its references can point to."""

    pod: Pod
    node: Json
    address: str
    host_address: str
    lookup: Lookup
    token: Token
    memory: Path
    """Folder that outlives the pod and ends with its node."""


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

    Raises ConfigError if a required reference points to nothing, or is of a kind that is not offered here.
    """
    variables = dict(injected)
    if "envFrom" in container:
        raise ConfigError("envFrom is not offered here; use env with configMapKeyRef or secretKeyRef")
    for entry in container.get("env", []):
        value = _value(entry, around, variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def command_line(container: Json, variables: Mapping[str, str]) -> list[str]:
    """Return the program and arguments of the container.

    Raises ConfigError if the container relies on its image's entry point.
    """
    if not container.get("command"):
        raise ConfigError(
            f"container {container['name']!r} has no command; images are not run here, so an image's entry point"
            " is unknown: set command"
        )
    return [expand(word, variables) for word in (*container["command"], *container.get("args", []))]


def _field_value(path: str, around: Surroundings) -> str:
    pod = around.pod
    if entry := _MAP_ENTRY.fullmatch(path):
        return (pod.metadata.get(entry[1]) or {}).get(entry[2], "")
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        "status.podIP": around.address,
        "status.hostIP": around.host_address,
    }
    if path not in fields:
        raise ConfigError(f"fieldRef {path!r} is not offered here; choose one of {', '.join(fields)}")
    return fields[path]


def container_mounts(container: Json, around: Surroundings, folder: Path) -> list[Mount]:
    """Return the mounts of a container. Volumes are folders in `folder`, made when they are first used.

    Contents are written once: a later change of a ConfigMap is not seen, and tokens are not renewed. `medium: Memory`
    is a folder like any other, and so is the RAM disk of a node, which all pods of the node share. Raises ConfigError
    if a volume's source is missing or not offered, or its mount path does not exist here.
    """
    volumes = {volume["name"]: volume for volume in around.pod.spec.get("volumes", [])}
    mounts: list[Mount] = []
    for mount in container.get("volumeMounts", []):
        target = mount["mountPath"]
        if target in _LEFT_OUT:
            continue
        if not os.path.exists(target):
            raise ConfigError(
                f"mountPath {target!r} of volume {mount['name']!r} does not exist on this machine,"
                " so nothing can be mounted there; use a path that exists, or create it"
            )
        if "subPath" in mount:
            raise ConfigError(f"subPath of volume {mount['name']!r} is not offered here; mount the volume as a whole")
        source = _made(volumes[mount["name"]], around, folder / mount["name"])
        mounts.append(Mount(source, target, mount.get("readOnly", False)))
    return mounts


def _value(entry: Json, around: Surroundings, variables: Mapping[str, str]) -> str | None:
    origin: Json | None = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value", ""), variables)
    if reference := origin.get("fieldRef"):
        return _field_value(reference["fieldPath"], around)
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if reference := origin.get(key):
            return _key_value(kind, reference, around.lookup)
    raise ConfigError(f"env {entry['name']!r}: {', '.join(origin)} is not offered here")


def _key_value(kind: str, reference: Json, lookup: Lookup) -> str | None:
    data = _object_data(kind, reference["name"], reference, lookup)
    if reference["key"] in data:
        # Converted back to the same bytes when the process starts.
        return data[reference["key"]].decode(errors="surrogateescape")
    if reference.get("optional"):
        return None
    raise ConfigError(f"couldn't find key {reference['key']!r} in {kind.removesuffix('s')} {reference['name']!r}")


def _object_data(kind: str, name: str, reference: Json, lookup: Lookup) -> Mapping[str, bytes]:
    """Return the data of the ConfigMap or Secret; empty if it does not exist and is optional."""
    data = lookup(kind, name)
    if data is None and not reference.get("optional"):
        raise ConfigError(f"{kind.removesuffix('s')} {name!r} not found")
    return data or {}


def _made(volume: Json, around: Surroundings, folder: Path) -> Path:
    if volume.get("csi", {}).get("driver") == RAM_DISK_DRIVER:
        around.memory.mkdir(parents=True, exist_ok=True)
        return around.memory
    if not folder.exists():
        files = _files(volume, around)
        folder.mkdir(parents=True)
        for name, content in files.items():
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ConfigError(f"path {name!r} leaves its volume; use a path below it")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def _files(volume: Json, around: Surroundings) -> Mapping[str, bytes]:
    if "emptyDir" in volume:
        return {}
    if "projected" in volume:
        files: dict[str, bytes] = {}
        for source in volume["projected"].get("sources", []):
            files |= _files({"name": volume["name"], **source}, around)
        return files
    for key, kind in (("configMap", "configmaps"), ("secret", "secrets")):
        if reference := volume.get(key):
            name = reference.get("name") or reference["secretName"]
            return _select(_object_data(kind, name, reference, around.lookup), reference)
    if source := volume.get("serviceAccountToken"):
        return {source["path"]: around.token(source).encode()}
    kinds = ", ".join(key for key in volume if key != "name")
    raise ConfigError(f"volume {volume['name']!r} of kind {kinds} is not offered here; use emptyDir or configMap")


def _select(data: Mapping[str, bytes], reference: Json) -> Mapping[str, bytes]:
    items: list[Json] | None = reference.get("items")
    if items is None:
        return data
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not reference.get("optional"):
        raise ConfigError(f"references non-existent config key: {', '.join(missing)}")
    return {item["path"]: data[item["key"]] for item in items if item["key"] in data}

"""A container's environment, command and volumes: references resolved, `$(VAR)` expanded.

Pure but for the lookup of ConfigMaps and Secrets that the caller passes in, and the files of volumes. The order of
variables is kubelet's: image, device plugin, then what the pod sets itself, which wins.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from kubernetes.utils.quantity import parse_quantity

from sandbox.node_agent.pod import ConfigError, Json, Pod

type Lookup = Callable[[str, str], Mapping[str, bytes] | None]
"""Data of the object of a kind (`configmaps` or `secrets`) and name, or None if there is none."""

type Token = Callable[[Json], str]
"""A token of the pod's service account, bound to the pod, from a projected volume's source."""

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_MAP_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


@dataclass(frozen=True)
class Surroundings:
    """A pod and what its references can point to."""

    pod: Pod
    node: Json
    address: str
    host_address: str
    lookup: Lookup
    token: Token


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`; an unknown name stays as it is."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def declared_variables(container: Json, around: Surroundings, injected: Mapping[str, str]) -> dict[str, str]:
    """The variables of the container's specification, over those that a webhook `injected` into it.

    Raises:
        ConfigError: a reference that is not optional points to nothing.
    """
    variables = dict(injected)
    for source in container.get("envFrom", []):
        variables |= _variables_from(source, around.lookup)
    for entry in container.get("env", []):
        value = _value(entry, container, around, variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def command_line(container: Json, variables: Mapping[str, str]) -> list[str]:
    """Program and arguments of the container.

    Raises:
        ConfigError: the container relies on its image's entry point.
    """
    if not container.get("command"):
        raise ConfigError(
            f"container {container['name']!r} has no command; images are not run here, so an image's entry point"
            " is unknown: set command"
        )
    return [expand(word, variables) for word in (*container["command"], *container.get("args", []))]


def field_value(path: str, around: Surroundings) -> str:
    """What a fieldRef to `path` gives.

    Raises:
        ConfigError: no such field is offered here.
    """
    pod = around.pod
    if entry := _MAP_ENTRY.fullmatch(path):
        return (pod.labels if entry[1] == "labels" else pod.annotations).get(entry[2], "")
    fields: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: pod.name,
        "metadata.namespace": lambda: pod.namespace,
        "metadata.uid": lambda: pod.uid,
        "metadata.labels": lambda: _entries(pod.labels),
        "metadata.annotations": lambda: _entries(pod.annotations),
        "spec.nodeName": lambda: pod.node,
        "spec.serviceAccountName": lambda: pod.spec.get("serviceAccountName", "default"),
        "status.podIP": lambda: around.address,
        "status.podIPs": lambda: around.address,
        "status.hostIP": lambda: around.host_address,
        "status.hostIPs": lambda: around.host_address,
    }
    if path not in fields:
        raise ConfigError(f"fieldRef {path!r} is not offered here; choose one of {', '.join(fields)}")
    return fields[path]()


def resource_value(reference: Json, container: Json, node: Json) -> str:
    """What a resourceFieldRef gives: the container's own amount, else what the node can give.

    Raises:
        ConfigError: the amount is of something other than CPU, memory or ephemeral storage.
    """
    table, _, resource = reference["resource"].partition(".")
    if table not in ("limits", "requests") or resource not in ("cpu", "memory", "ephemeral-storage"):
        raise ConfigError(f"resourceFieldRef {reference['resource']!r} is not offered here; use CPU or memory")
    asked = container.get("resources", {}).get(table, {}).get(resource)
    amount = node["status"]["allocatable"].get(resource, "0") if asked is None else asked
    divisor: Decimal = parse_quantity(reference.get("divisor", "1")) or Decimal(1)
    return str(math.ceil(parse_quantity(amount) / divisor))


def object_data(kind: str, reference: Json, lookup: Lookup) -> Mapping[str, bytes] | None:
    """Data of the ConfigMap or Secret that `reference` names; None if it may be missing and is.

    Raises:
        ConfigError: it is missing and must not be.
    """
    name = reference.get("name") or reference["secretName"]
    data = lookup(kind, name)
    if data is None and not reference.get("optional"):
        raise ConfigError(f"{kind.removesuffix('s')} {name!r} not found")
    return data


def _variables_from(source: Json, lookup: Lookup) -> dict[str, str]:
    if "configMapRef" in source:
        data = object_data("configmaps", source["configMapRef"], lookup) or {}
    else:
        data = object_data("secrets", source["secretRef"], lookup) or {}
    return {source.get("prefix", "") + key: _text(value) for key, value in data.items()}


def _value(entry: Json, container: Json, around: Surroundings, variables: Mapping[str, str]) -> str | None:
    origin: Json | None = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value", ""), variables)
    if reference := origin.get("fieldRef"):
        return field_value(reference["fieldPath"], around)
    if reference := origin.get("resourceFieldRef"):
        return resource_value(reference, container, around.node)
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if reference := origin.get(key):
            return _key_value(kind, reference, around.lookup)
    raise ConfigError(f"env {entry['name']!r}: {', '.join(origin)} is not offered here")


def _key_value(kind: str, reference: Json, lookup: Lookup) -> str | None:
    data = object_data(kind, reference, lookup)
    if data is None:
        return None
    if reference["key"] in data:
        return _text(data[reference["key"]])
    if reference.get("optional"):
        return None
    raise ConfigError(f"couldn't find key {reference['key']!r} in {kind.removesuffix('s')} {reference['name']!r}")


def _text(value: bytes) -> str:
    # The way back to bytes when the process starts, so that any value arrives unchanged.
    return value.decode(errors="surrogateescape")


def _entries(values: Mapping[str, str]) -> str:
    lines: Iterable[str] = (f'{key}="{value}"' for key, value in sorted(values.items()))
    return "\n".join(lines)


SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where admission mounts a token into every pod; left out, pods here have no access to the API."""
_LEFT_OUT = (SERVICE_ACCOUNT_PATH, "/tmp")


@dataclass(frozen=True)
class Mount:
    """One bind mount inside a container's mount namespace."""

    source: Path
    target: str
    read_only: bool


def container_mounts(container: Json, around: Surroundings, folder: Path) -> list[Mount]:
    """The mounts of a container; volumes are made in `folder` when first used.

    Raises:
        ConfigError: a volume's source is missing or not offered, or its mount path does not exist here.
    """
    volumes = {volume["name"]: volume for volume in around.pod.spec.get("volumes", [])}
    wanted = [mount for mount in container.get("volumeMounts", []) if mount["mountPath"] not in _LEFT_OUT]
    mounts: list[Mount] = []
    for mount in wanted:
        if not os.path.exists(mount["mountPath"]):
            raise ConfigError(
                f"mountPath {mount['mountPath']!r} of volume {mount['name']!r} does not exist on this machine,"
                " so nothing can be mounted there; use a path that exists, or create it"
            )
        source = _source(volumes[mount["name"]], container, around, folder / mount["name"])
        if sub_path := mount.get("subPath"):
            source = _inside(source, sub_path)
            if not source.exists():
                source.mkdir(parents=True)
        mounts.append(Mount(source, mount["mountPath"], mount.get("readOnly", False)))
    return mounts


def _source(volume: Json, container: Json, around: Surroundings, folder: Path) -> Path:
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    if folder.exists():
        return folder
    files = _files(volume, container, around)
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = _inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _files(volume: Json, container: Json, around: Surroundings) -> Mapping[str, bytes]:
    if "emptyDir" in volume:
        return {}
    if "projected" in volume:
        files: dict[str, bytes] = {}
        for source in volume["projected"].get("sources", []):
            files |= _files({"name": volume["name"], **source}, container, around)
        return files
    for key, kind in (("configMap", "configmaps"), ("secret", "secrets")):
        if key in volume:
            return _selected(object_data(kind, volume[key], around.lookup) or {}, volume[key])
    if source := volume.get("serviceAccountToken"):
        return {source["path"]: around.token(source).encode()}
    if "downwardAPI" in volume:
        items: list[Json] = volume["downwardAPI"].get("items", [])
        return {item["path"]: _downward(item, container, around).encode() for item in items}
    kinds = ", ".join(key for key in volume if key != "name")
    raise ConfigError(f"volume {volume['name']!r} of kind {kinds} is not offered here; use emptyDir or configMap")


def _selected(data: Mapping[str, bytes], reference: Json) -> Mapping[str, bytes]:
    items: list[Json] | None = reference.get("items")
    if items is None:
        return data
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not reference.get("optional"):
        raise ConfigError(f"references non-existent config key: {', '.join(missing)}")
    return {item["path"]: data[item["key"]] for item in items if item["key"] in data}


def _downward(item: Json, container: Json, around: Surroundings) -> str:
    if reference := item.get("fieldRef"):
        return field_value(reference["fieldPath"], around)
    return resource_value(item["resourceFieldRef"], container, around.node)


def _inside(folder: Path, relative: str) -> Path:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigError(f"path {relative!r} leaves its volume; use a path below it")
    return path

"""Volumes of a pod as folders and files of its working folder, to be bind-mounted into its containers.

Contents are written once, when the pod starts: a later change of a ConfigMap is not seen, a token is not renewed.
`medium: Memory` is a folder like any other. A volume at /tmp is left out, for checkout and sandbox may lie
below it: pods have a folder of their own for temporary files, which `container` mounts elsewhere.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.node_agent.environment import Surroundings, field_value, object_data, resource_value
from sandbox.node_agent.pod import ConfigError, Json

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

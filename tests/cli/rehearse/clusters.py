"""Clusters with Kueue that other tools made, on a played API server, and jobs for them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cli.api_server import Played

type Object = dict[str, Any]
type Rehearse = Callable[..., dict[str, Any]]
"""Rehearses documents on a cluster, and returns the answer to the first."""

TPU = "google.com/tpu"
V6E = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
GROUP, SYSTEM = "kueue.x-k8s.io", "/api/v1/namespaces/kueue-system/configmaps"


def path(plural: str, version: str = "v1beta2", namespace: str = "") -> str:
    return f"/apis/{GROUP}/{version}/" + (f"namespaces/{namespace}/" if namespace else "") + plural


def cluster(*objects: Object, version: str = "v1beta2", config: Mapping[str, object] | None = None) -> Played:
    """A cluster with these objects, and JobSet. `config` is Kueue's configuration; its defaults by default."""
    played = Played()
    versions = [{"groupVersion": f"{GROUP}/{version}"}]
    played.collections["/apis"] = [{"metadata": {"name": GROUP}, "versions": versions}, named("jobset.x-k8s.io")]
    played.collections["/api/v1/namespaces"] = [named("default", labels={"team": "research"})]
    text = yaml.safe_dump({"kind": "Configuration", **(config or {})})
    played.collections[SYSTEM] = [{**named("kueue-manager-config"), "data": {"controller_manager_config.yaml": text}}]
    for each in objects:
        plural = f"{each['kind'].lower()}s".replace("classs", "classes")
        api = {"Node": "/api/v1/nodes", "PriorityClass": f"/apis/scheduling.k8s.io/v1/{plural}"}
        played.collections[api.get(each["kind"], path(plural, version))].append(each)
    return played


def named(name: str, **more: object) -> Object:
    return {"metadata": {"name": name, "uid": name, **more}}


def xpk(chips: int = 32, **spec: Any) -> list[Object]:
    """What xpk makes: one queue for all, with one flavor, in the old version of the API."""
    return [
        {"kind": "ResourceFlavor", **named("1xv6e-16"), "spec": {"nodeLabels": V6E}},
        cluster_queue("cluster-queue", {TPU: {"1xv6e-16": chips}}, **spec),
        local_queue("multislice-queue", "cluster-queue"),
        *({"kind": "PriorityClass", **named(name), "value": value} for name, value in (("low", 250), ("high", 750))),
    ]


def gcluster(chips: int = 32, cpus: int = 10_000) -> list[Object]:
    """What gcluster makes for Pathways: flavors for TPUs and for the head, with quotas of CPU and memory as well."""
    tolerations = [{"key": TPU, "value": "present", "effect": "NoSchedule"}]
    tpu = {"nodeLabels": V6E, "tolerations": tolerations}
    quotas = {
        TPU: {"flavor-tpu": chips, "pathways-flavor": 0},
        "cpu": {"flavor-tpu": cpus, "pathways-flavor": 480},
        "memory": {"flavor-tpu": "10000Gi", "pathways-flavor": "2000Gi"},
    }
    return [
        {"kind": "ResourceFlavor", **named("flavor-tpu"), "spec": tpu},
        {
            "kind": "ResourceFlavor",
            **named("pathways-flavor"),
            "spec": {"nodeLabels": {"cloud.google.com/gke-nodepool": "cpu-np"}},
        },
        cluster_queue("cluster-queue", quotas),
        local_queue("user-queue", "cluster-queue"),
    ]


def cluster_queue(name: str, quotas: Mapping[str, Mapping[str, int | str]], **spec: Any) -> Object:
    flavors = list(dict.fromkeys(flavor for each in quotas.values() for flavor in each))
    listed = [
        {"name": flavor, "resources": [{"name": key, "nominalQuota": each[flavor]} for key, each in quotas.items()]}
        for flavor in flavors
    ]
    default = {
        "preemption": {"reclaimWithinCohort": "Never", "withinClusterQueue": "LowerPriority"},
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [*quotas], "flavors": listed}],
    }
    active = {"type": "Active", "status": "True", "reason": "Ready"}
    status = {"conditions": [active]}
    return {"kind": "ClusterQueue", **named(name), "spec": default | spec, "status": status}


def local_queue(name: str, queue: str, namespace: str = "default", **spec: object) -> Object:
    return {"kind": "LocalQueue", **named(name, namespace=namespace), "spec": {"clusterQueue": queue, **spec}}


def workload(
    name: str,
    chips: int,
    flavor: str | None = "1xv6e-16",
    *,
    priority: int = 0,
    namespace: str = "default",
    queue: str = "multislice-queue",
    cluster_queue: str = "cluster-queue",
) -> Object:
    """A Workload of a JobSet with one host, which has a flavor or waits."""
    owner = [{"kind": "JobSet", "name": name}]
    about = named(
        f"jobset-{name}", namespace=namespace, ownerReferences=owner, creationTimestamp="2026-01-05T12:00:00Z"
    )
    template = {"spec": {"containers": [{"resources": {"limits": {TPU: chips}}}], "nodeSelector": V6E}}
    spec = {
        "queueName": queue,
        "priority": priority,
        "podSets": [{"name": "slice", "count": 1, "template": template}],
    }
    status: Object = {}
    if flavor:
        assigned = [{"name": "slice", "count": 1, "flavors": {TPU: flavor}}]
        held = {"type": "QuotaReserved", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-05T12:00:01Z"}
        status = {"admission": {"clusterQueue": cluster_queue, "podSetAssignments": assigned}, "conditions": [held]}
    return {"kind": "Workload", **about, "spec": spec, "status": status}


def node(zone: str = "us-east5-a", **labels: str) -> Object:
    return {"kind": "Node", **named("gke-1", labels={**V6E, "topology.kubernetes.io/zone": zone, **labels})}


def jobset(name: str = "llama", queue: str | None = "multislice-queue", replicas: int = 1, **changes: Any) -> Object:
    """A JobSet as xpk and gcluster make it: slices of four hosts with four chips each."""
    container = {"name": "jax", "image": "i", "resources": {"limits": {TPU: 4, **changes.pop("limits", {})}}}
    pod = {"containers": [container], "nodeSelector": V6E, **changes.pop("pod", {})}
    job = {"backoffLimit": 0, "completions": 4, "parallelism": 4, "template": {"spec": pod}}
    labels = {**({"kueue.x-k8s.io/queue-name": queue} if queue else {}), **changes.pop("labels", {})}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels, **changes.pop("metadata", {})},
        "spec": {"replicatedJobs": [{"name": "slice-job", "replicas": replicas, "template": {"spec": job}}], **changes},
    }


def written(folder: Path, *documents: object) -> str:
    """Write the documents to a file and return its path."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return str(file)


def kubeconfig(folder: Path, played: Played, namespace: str = "default") -> str:
    host, port = played.server_address[:2]
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://{host!s}:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return str(file)


def forbid(played: Played, *plurals: str) -> None:
    """Refuse to list these kinds in all namespaces."""
    for plural in plurals:
        for version in ("v1beta1", "v1beta2"):
            played.refused[path(plural, version)] = 403

"""Small plans that keep every rule, to be broken in one place.

All that a plan holds is named after the rule that it is an example of, so that the examples of several
rules can stand side by side.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import yaml

from policy.resources import BUCKET, CLUSTER, JOB_SET, NODE_POOL, REPOSITORY
from policy.rule import Declared
from tests.policy.example import Example, declared

type Make = Callable[[str], Declared]
type Path = tuple[str | int, ...]

KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
POD: Path = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
JOB: Path = ("spec", "replicatedJobs", 0, "template", "spec")
QUOTA: Path = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0)


def alone(rule: str, make: Make, path: Path, value: Any, says: str) -> dict[str, Example]:
    """An example of one resource, broken by `value`; None removes what is at the path."""
    return {rule: Example((make(rule),), (having(make(rule), path, value),), says)}


def among(rule: str, makes: tuple[Make, ...], path: Path, value: Any, says: str) -> dict[str, Example]:
    """An example of several resources, of which the first is broken by `value`."""
    first, *others = (make(rule) for make in makes)
    return {rule: Example((first, *others), (having(first, path, value), *others), says)}


def without_option(rule: str, make: Make, option: str, says: str) -> dict[str, Example]:
    """An example of one resource, broken by the lack of an option."""
    return {rule: Example((make(rule),), (replace(make(rule), **{option: False}),), says)}


def having(resource: Declared, path: Path, value: Any) -> Declared:
    """The resource with another value at a path."""
    properties: Any = deepcopy(dict(resource.properties))
    inner = properties
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return replace(resource, properties=properties)


def cluster(name: str) -> Declared:
    """A cluster as a stack for production declares it."""
    properties = {
        "name": name,
        "location": "us-east5",
        "deletionProtection": True,
        "removeDefaultNodePool": True,
        "releaseChannel": {"channel": "STABLE"},
        "enableMultiNetworking": True,
        "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
        "loggingConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
        "monitoringConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "JOBSET"]},
        "resourceLabels": {"team": name},
    }
    return declared(CLUSTER, name, properties)


def system_pool(name: str) -> Declared:
    """Nodes without chips."""
    properties = {
        "name": f"{name}-system",
        "location": "us-east5",
        "nodeCount": 2,
        "management": {"autoRepair": True, "autoUpgrade": True},
        "nodeConfig": {"machineType": "e2-standard-8", "resourceLabels": {"team": name}},
    }
    return declared(NODE_POOL, f"{name}-system", properties)


def spot_pool(name: str) -> Declared:
    """A v6e slice of four hosts of four chips."""
    properties = {
        "name": name,
        "location": "us-east5",
        "nodeLocations": ["us-east5-b"],
        "nodeCount": 4,
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
        "management": {"autoRepair": True, "autoUpgrade": True},
        "maintenancePolicies": [{"exclusionUntilEndOfSupports": [{"enabled": True}]}],
        "upgradeSettings": {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1},
        "networkConfig": {"additionalNodeNetworkConfigs": [{"network": "second", "subnetwork": "second"}]},
        "nodeConfig": {
            "machineType": "ct6e-standard-4t",
            "spot": True,
            "bootDisk": {"diskType": "hyperdisk-balanced"},
            "secondaryBootDisks": [{"diskImage": "image", "mode": "CONTAINER_IMAGE_CACHE"}],
            "gcfsConfig": {"enabled": True},
            "gvnic": {"enabled": True},
            "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
            "labels": {"slice-group": name},
            "resourceLabels": {"team": name},
        },
    }
    return declared(NODE_POOL, name, properties, delete_before_replace=True)


def on_demand_pool(name: str) -> Declared:
    """The same of chips that are kept."""
    return having(spot_pool(name), ("nodeConfig", "spot"), False)


def reserved_pool(name: str) -> Declared:
    """The same of reserved chips."""
    affinity = {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["chips"],
    }
    return having(on_demand_pool(name), ("nodeConfig", "reservationAffinity"), affinity)


def flex_start_pool(name: str) -> Declared:
    """The same of chips that come when pods wait for them."""
    pool = having(having(on_demand_pool(name), ("nodeCount",), None), ("nodeConfig", "flexStart"), True)
    scaling = {"minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"}
    pool = having(having(pool, ("autoscaling",), scaling), ("nodeConfig", "maxRunDuration"), "14400s")
    return having(having(pool, ("upgradeSettings",), None), ("management", "autoRepair"), False)


def queued_pool(name: str) -> Declared:
    """The same of chips that Kueue asks for."""
    pool = having(flex_start_pool(name), ("queuedProvisioning",), {"enabled": True})
    return having(pool, ("nodeConfig", "labels", "cloud.google.com/gke-queued"), "true")


def bucket(name: str) -> Declared:
    """A bucket for checkpoints."""
    properties = {
        "name": f"{name}-checkpoints",
        "location": "US-EAST5",
        "labels": {"team": name},
        "forceDestroy": False,
        "hierarchicalNamespace": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": 604800},
        "lifecycleRules": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 1}}],
    }
    return declared(BUCKET, name, properties)


def repository(name: str) -> Declared:
    """A repository of images."""
    policies = [{"id": "old", "action": "DELETE", "condition": {"tagState": "UNTAGGED"}}]
    properties = {"repositoryId": name, "format": "DOCKER", "labels": {"team": name}, "cleanupPolicies": policies}
    return declared(REPOSITORY, name, properties)


def job_set(name: str) -> Declared:
    """A job on one such slice."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "4x4",
            "slice-group": name,
        },
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}],
        "containers": [
            {
                "name": "trainer",
                "env": [{"name": "SPEC", "value": _SPECIFICATION}],
                "resources": {"requests": {"cpu": "100", "google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}},
            }
        ],
    }
    job = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 0}
    return declared(
        JOB_SET,
        name,
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": name,
                "namespace": name,
                "labels": {
                    "kueue.x-k8s.io/queue-name": name,
                    "kueue.x-k8s.io/priority-class": name,
                    "kueue.x-k8s.io/max-exec-time-seconds": "3600",
                },
                "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
            },
            "spec": {
                "failurePolicy": {
                    "maxRestarts": 3,
                    "restartStrategy": "BlockingRecreate",
                    "rules": [{"name": "lost", "action": "RestartJobSetAndIgnoreMaxRestarts"}],
                },
                "replicatedJobs": [
                    {"name": "slice", "replicas": 1, "template": {"spec": {**job, "template": {"spec": pod}}}}
                ],
            },
        },
        delete_before_replace=True,
    )


def flavor(name: str) -> Declared:
    """The chips of such slices."""
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "slice-group": name,
    }
    taints = [
        {"key": key, "value": "present", "effect": "NoSchedule"}
        for key in ("google.com/tpu", "cloud.google.com/gke-queued")
    ]
    return _kueue("ResourceFlavor", name, {"nodeLabels": labels, "nodeTaints": taints, "topologyName": name})


def topology(name: str) -> Declared:
    """The way from a host to its slice."""
    return _kueue("Topology", name, {"levels": [{"nodeLabel": "cloud.google.com/gke-nodepool"}]})


def cluster_queue(name: str) -> Declared:
    """The quota of a team: one slice."""
    quota = {"name": "google.com/tpu", "nominalQuota": "16", "lendingLimit": "16"}
    spec = {
        "cohortName": name,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "admissionChecksStrategy": {"admissionChecks": [{"name": name, "onFlavors": [name]}]},
        "resourceGroups": [
            {"coveredResources": ["google.com/tpu"], "flavors": [{"name": name, "resources": [quota]}]},
        ],
    }
    return _kueue("ClusterQueue", name, spec)


def local_queue(name: str) -> Declared:
    """Where a team submits."""
    return _kueue("LocalQueue", name, {"clusterQueue": name}, namespace=name)


def admission_check(name: str) -> Declared:
    """What a job waits for."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name}
    return _kueue("AdmissionCheck", name, {"parameters": parameters})


def provisioning(name: str) -> Declared:
    """How Kueue asks for a slice."""
    spec = {"managedResources": ["google.com/tpu"], "parameters": {"tpu-topology": "4x4"}}
    return _kueue("ProvisioningRequestConfig", name, spec)


def priority(name: str) -> Declared:
    """A priority in the queue."""
    return declared(f"{KUEUE}:WorkloadPriorityClass", name, {"metadata": {"name": name}, "value": 1})


def namespace(name: str) -> Declared:
    """Of a team."""
    return declared("kubernetes:core/v1:Namespace", name, {"metadata": {"name": name, "labels": {"managed": name}}})


def configuration(name: str, **changes: Any) -> Declared:
    """Kueue's own, as its chart makes it."""
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {"managed": name}},
        "resources": {"excludeResourcePrefixes": ["cpu", "memory"]},
        "waitForPodsReady": {"timeout": "168h"},
    } | changes
    data = {"controller_manager_config.yaml": yaml.safe_dump(settings)}
    return declared(
        "kubernetes:core/v1:ConfigMap", name, {"metadata": {"name": name, "namespace": "kueue-system"}, "data": data}
    )


_SPECIFICATION = '{"training": {"save_every_minutes": 10}, "storage": {"path": "gs://bucket/job"}}'


def _kueue(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> Declared:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind}
    return declared(f"{KUEUE}:{kind}", name, {**head, "metadata": {"name": name, **metadata}, "spec": spec})

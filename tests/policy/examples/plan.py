"""Small plans that keep every rule, and ways to break them in one place.

Everything in a plan is named after the rule that it is an example of, so that the examples of all rules can be in one
program.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import yaml

from policy.rule import BUCKET, CLUSTER, JOB_SET, NAMESPACE, NODE_POOL, REPOSITORY, Declared
from tests.policy.example import Example, declared

type Make = Callable[[str], Declared]
type Path = str | tuple[str | int, ...]
"""Keys with dots between them, or a tuple if a key has dots itself."""

KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
POD = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
QUOTA = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0)


def alone(rule: str, make: Make, says: str, *changes: tuple[Path, Any]) -> dict[str, Example]:
    """Return an example of single resources, each broken by one change; None removes what is at the path."""
    return {rule: Example((make(rule),), broken(rule, make, *changes), says)}


def several(
    rule: str, says: str, *parts: tuple[Make, *tuple[tuple[Path, Any], ...]], also: tuple[Declared, ...] = ()
) -> dict[str, Example]:
    """Return an example of single resources of several types, each broken by one change, and others that fail."""
    failing = (resource for make, *changes in parts for resource in broken(rule, make, *changes))
    return {rule: Example(tuple(make(rule) for make, *_ in parts), (*failing, *also), says)}


def broken(rule: str, make: Make, *changes: tuple[Path, Any]) -> tuple[Declared, ...]:
    """Return a resource for each change."""
    return tuple(having(make(f"{rule}-{index}"), path, value) for index, (path, value) in enumerate(changes))


def among(rule: str, makes: tuple[Make, ...], path: Path, value: Any, says: str) -> dict[str, Example]:
    """Return an example of several resources, of which a change breaks the first."""
    first, *others = (make(rule) for make in makes)
    return {rule: Example((first, *others), (having(first, path, value), *others), says)}


def having(resource: Declared, path: Path, value: Any) -> Declared:
    """Return the resource with another value at a path; None removes the value."""
    properties: Any = deepcopy(dict(resource.properties))
    *parents, last = path.split(".") if isinstance(path, str) else path
    inner = properties
    for key in parents:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return replace(resource, properties=properties)


def cluster(name: str) -> Declared:
    """Return a cluster as a stack for production declares it."""
    properties = {
        "name": name,
        "location": "us-east5",
        "deletionProtection": True,
        "removeDefaultNodePool": True,
        "datapathProvider": "ADVANCED_DATAPATH",
        "privateClusterConfig": {"enablePrivateNodes": True},
        "controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}},
        "workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"},
        "anonymousAuthenticationConfig": {"mode": "LIMITED"},
        "rbacBindingConfig": {
            "enableInsecureBindingSystemAuthenticated": False,
            "enableInsecureBindingSystemUnauthenticated": False,
        },
        "databaseEncryption": {"state": "ENCRYPTED", "keyName": "key"},
        "binaryAuthorization": {"evaluationMode": "PROJECT_SINGLETON_POLICY_ENFORCE"},
        "resourceLabels": {"team": name},
    }
    return declared(CLUSTER, name, properties)


def system_pool(name: str) -> Declared:
    """Return nodes without chips."""
    properties = {
        "name": f"{name}-system",
        "location": "us-east5",
        "nodeCount": 2,
        "management": {"autoRepair": True, "autoUpgrade": True},
        "networkConfig": {"enablePrivateNodes": True},
        "nodeConfig": {
            "machineType": "e2-standard-8",
            "serviceAccount": "nodes@my-project.iam.gserviceaccount.com",
            "workloadMetadataConfig": {"mode": "GKE_METADATA"},
            "shieldedInstanceConfig": {"enableSecureBoot": True, "enableIntegrityMonitoring": True},
            "resourceLabels": {"team": name},
        },
    }
    return declared(NODE_POOL, f"{name}-system", properties)


def spot_pool(name: str) -> Declared:
    """Return a v6e slice of four hosts with four chips each."""
    properties = {
        "name": name,
        "location": "us-east5",
        "nodeCount": 4,
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
        "management": {"autoRepair": True, "autoUpgrade": True},
        "maintenancePolicies": [{"exclusionUntilEndOfSupports": [{"enabled": True}]}],
        "nodeConfig": {
            "machineType": "ct6e-standard-4t",
            "spot": True,
            "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
            "labels": {"slice-group": name},
            "resourceLabels": {"team": name},
        },
    }
    return declared(NODE_POOL, name, properties, delete_before_replace=True)


def on_demand_pool(name: str) -> Declared:
    """Return the same slice with chips on demand."""
    return having(spot_pool(name), "nodeConfig.spot", False)


def reserved_pool(name: str) -> Declared:
    """Return the same slice with reserved chips."""
    affinity = {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["chips"],
    }
    return having(on_demand_pool(name), "nodeConfig.reservationAffinity", affinity)


def flex_start_pool(name: str) -> Declared:
    """Return the same slice with chips that come when pods wait for them."""
    pool = having(having(on_demand_pool(name), "nodeConfig.flexStart", True), "nodeCount", None)
    return having(having(pool, "autoscaling", {"maxNodeCount": 4}), "management.autoRepair", False)


def queued_pool(name: str) -> Declared:
    """Return the same slice with chips that Kueue asks for."""
    return having(flex_start_pool(name), "queuedProvisioning", {"enabled": True})


def bucket(name: str) -> Declared:
    """Return a bucket for checkpoints."""
    properties = {
        "name": f"{name}-checkpoints",
        "location": "US-EAST5",
        "labels": {"team": name},
        "forceDestroy": False,
        "publicAccessPrevention": "enforced",
        "uniformBucketLevelAccess": True,
        "softDeletePolicy": {"retentionDurationSeconds": 604800},
        "lifecycleRules": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 1}}],
    }
    return declared(BUCKET, name, properties)


def repository(name: str) -> Declared:
    """Return a repository of images."""
    policies = [{"id": "old", "action": "DELETE", "condition": {"tagState": "UNTAGGED"}}]
    properties = {"repositoryId": name, "format": "DOCKER", "labels": {"team": name}, "cleanupPolicies": policies}
    return declared(REPOSITORY, name, properties)


def job_set(name: str) -> Declared:
    """Return a job on one such slice."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "4x4",
            "slice-group": name,
        },
        "containers": [
            {
                "name": "trainer",
                "env": [{"name": "SPEC", "value": _SPECIFICATION}],
                "resources": {"requests": {"cpu": "100", "google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}},
            }
        ],
    }
    labels = {"kueue.x-k8s.io/queue-name": name, "kueue.x-k8s.io/max-exec-time-seconds": "3600"}
    rules = [{"name": "lost", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
    job = {"name": "slice", "replicas": 1, "template": {"spec": {"parallelism": 4, "template": {"spec": pod}}}}
    properties = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": name, "labels": labels},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate", "rules": rules},
            "replicatedJobs": [job],
        },
    }
    return declared(JOB_SET, name, properties, delete_before_replace=True)


def flavor(name: str) -> Declared:
    """Return the flavor of such slices."""
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "slice-group": name,
    }
    return _kueue("ResourceFlavor", name, {"nodeLabels": labels})


def cluster_queue(name: str) -> Declared:
    """Return the quota of a team: one slice."""
    quota = {"name": "google.com/tpu", "nominalQuota": "16"}
    groups = [{"coveredResources": ["google.com/tpu"], "flavors": [{"name": name, "resources": [quota]}]}]
    return _kueue("ClusterQueue", name, {"cohortName": name, "resourceGroups": groups})


def local_queue(name: str) -> Declared:
    """Return the queue that a team submits to."""
    return _kueue("LocalQueue", name, {"clusterQueue": name}, namespace=name)


def namespace(name: str) -> Declared:
    """Return the namespace of a team."""
    return declared(NAMESPACE, name, {"metadata": {"name": name, "labels": {"managed": name}}})


def configuration(name: str, **changes: Any) -> Declared:
    """Return Kueue's own configuration, as its chart renders it."""
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "managedJobsNamespaceSelector": {"matchLabels": {"managed": name}},
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

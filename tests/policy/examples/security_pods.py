"""What the rules of security on pods are shown."""

from collections.abc import Mapping
from typing import Any

from infra.pods import CONFINED_CONTAINER, CONFINED_POD, TOKEN_SECONDS
from policy.resources import JOB_SET
from policy.rule import Declared
from tests.policy.example import Example, declared
from workloads.spec import API_ACCESS_PATH

_DIGEST = f"example.com/trainer@sha256:{'0' * 64}"
_POD: Mapping[str, Any] = {
    "serviceAccountName": "trainer",
    "automountServiceAccountToken": False,
    "securityContext": CONFINED_POD,
}
_CONTAINER: Mapping[str, Any] = {
    "name": "trainer",
    "image": _DIGEST,
    "resources": {"requests": {"cpu": "1", "memory": "1Gi", "google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}},
    "securityContext": CONFINED_CONTAINER,
}


def _deployment(name: str, pod: Mapping[str, Any], container: Mapping[str, Any], namespace: str) -> Declared:
    spec = {**_POD, **pod, "containers": [{**_CONTAINER, **container}]}
    metadata = {"name": name, "namespace": namespace}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    properties = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    return declared("kubernetes:apps/v1:Deployment", name, properties)


def _jobset(name: str, pod: Mapping[str, Any], container: Mapping[str, Any]) -> Declared:
    spec = {**_POD, **pod, "restartPolicy": "Never", "containers": [{**_CONTAINER, **container}]}
    job = {"name": "slice", "replicas": 2, "template": {"spec": {"template": {"spec": spec}}}}
    properties = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "research"},
        "spec": {"replicatedJobs": [job]},
    }
    return declared(JOB_SET, name, properties)


def _pods(rule: str, says: str, pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[str, Example]:
    """The same fault in a JobSet and in a Deployment."""
    passing = (_jobset(rule, {}, {}), _deployment(f"{rule}-beside", {}, {}, "research"))
    failing = (_jobset(rule, pod, container), _deployment(f"{rule}-beside", pod, container, "research"))
    return rule, Example(passing, failing, says)


def _with_token(name: str, path: str, seconds: int) -> Declared:
    """A pod that asks for a token by itself."""
    sources = [{"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}]
    volumes = [{"name": "access", "projected": {"sources": sources}}]
    return _jobset(name, {"volumes": volumes}, {"volumeMounts": [{"name": "access", "mountPath": path}]})


def _config_map(name: str, value: str) -> Declared:
    metadata = {"name": name, "namespace": "research"}
    properties = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings": value}}
    return declared("kubernetes:core/v1:ConfigMap", name, properties)


EXAMPLES: dict[str, Example] = {
    **dict(
        (
            _pods("image-by-digest", "got example.com/trainer:latest", {}, {"image": "example.com/trainer:latest"}),
            _pods("no-host-namespaces", "got hostNetwork", {"hostNetwork": True}, {}),
            _pods(
                "pod-requests",
                "got no cpu and no memory",
                {},
                {"resources": {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}},
            ),
            _pods(
                "no-privileges",
                "got the capability SYS_ADMIN",
                {},
                {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
            ),
            _pods("no-root", "got runAsUser 0", {}, {"securityContext": {"runAsUser": 0}}),
            _pods("no-capabilities", "got NET_RAW", {}, {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}}),
            _pods("no-privilege-escalation", "allowPrivilegeEscalation", {}, {"securityContext": {}}),
            _pods("read-only-root", "readOnlyRootFilesystem", {}, {"securityContext": {}}),
            _pods(
                "confined-pods",
                "expected the runtime's seccompProfile, got Unconfined",
                {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
                {},
            ),
            _pods(
                "no-host-paths",
                "got /var/run",
                {"volumes": [{"name": "runtime", "hostPath": {"path": "/var/run"}}]},
                {},
            ),
            _pods("own-service-account", "every pod of the namespace", {"serviceAccountName": ""}, {}),
        )
    ),
    "no-plain-secrets": Example(
        (
            _jobset(
                "no-plain-secrets",
                {},
                {"env": [{"name": "MAX_TOKENS", "value": "4096"}, {"name": "TOKENIZERS_PARALLELISM", "value": "true"}]},
            ),
        ),
        (
            _jobset("no-plain-secrets", {}, {"env": [{"name": "HF_TOKEN", "value": "not-a-real-one"}]}),
            _jobset("no-plain-secrets-said", {}, {"args": [f"--key=glpat-{'0' * 20}"]}),
        ),
        "expected HF_TOKEN to come from a Secret",
    ),
    "no-api-token": Example(
        (_jobset("no-api-token", {}, {}), _with_token("no-api-token-trainer", API_ACCESS_PATH, TOKEN_SECONDS)),
        (
            _jobset("no-api-token", {"automountServiceAccountToken": True}, {}),
            _with_token("no-api-token-elsewhere", "/var/run/secrets", TOKEN_SECONDS),
            _with_token("no-api-token-forever", API_ACCESS_PATH, 31_536_000),
            declared("kubernetes:batch/v1:CronJob", "no-api-token-nightly", {}),
        ),
        "expected automountServiceAccountToken to be false",
    ),
    "own-namespace": Example(
        (_deployment("own-namespace", {}, {}, "research"),),
        (_deployment("own-namespace", {}, {}, "kube-system"),),
        "got kube-system",
    ),
    "no-secrets-in-config-maps": Example(
        (_config_map("no-secrets-in-config-maps", "steps: 100"),),
        (_config_map("no-secrets-in-config-maps", "-----BEGIN RSA PRIVATE KEY-----"),),
        "expected settings to hold no credential",
    ),
}

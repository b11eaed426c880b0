"""What pods must be, whichever object declares them. What is taken from their processes is in `confinement`."""

import re
from collections.abc import Iterator
from typing import Any

from infra.names import TPU_RESOURCE
from policy.resources import JOB_SET, at, every, switched_on
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must
from policy.rules.security.pod_specs import CRON_JOB, JOB, OBJECTS_WITH_PODS, POD, Part, containers, containers_of, pods
from policy.values import is_known

_CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
_STANDARDS = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"
_SHARED_WITH_HOST = ("hostNetwork", "hostPID", "hostIPC")
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_TOKEN_PATH, _TOKEN_SECONDS = "/mnt", 3600
"""Of the trainer's token, as tests hold against what `infra.pods` renders: rules are no part of the program."""
_SECRET_NAME = re.compile(r"PASSW|SECRET|TOKEN$|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY")
"""A token at the end alone: MAX_TOKENS and TOKENIZER hold no credential."""
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\"private_key\"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{35}|\bya29\.|\bGOCSPX-"
    r"|\bgh[opsu]_\w{36}|\bgithub_pat_|\bglpat-|\bhf_\w{30}|\bpul-[0-9a-f]{40}|\bxox[abprs]-|\bsk-[\w-]{20}"
)
"""Beginnings of well-known credentials."""


def _by_digest(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        image = container.get("image")
        # What is not known yet is the digest of an image that the program builds.
        if is_known(image) and "@sha256:" not in str(image):
            yield f"expected container {container['name']} to name its image by digest, got {image}"


def _requests(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        requests, limits = (at(container, "resources", kind) or {} for kind in ("requests", "limits"))
        missing = [name for name in ("cpu", "memory") if name not in {*requests, *limits}]
        if missing:
            yield f"expected container {container['name']} to request CPU and memory, got no {' and no '.join(missing)}"
        wanted, given = at(requests, TPU_RESOURCE), at(limits, TPU_RESOURCE)
        if wanted is not None and str(wanted) != str(given):
            yield f"expected container {container['name']} to have as many chips as it requests, {wanted}, got {given}"


def _own_host(declared: Declared) -> Iterator[str]:
    for pod in pods(declared):
        for setting in _SHARED_WITH_HOST:
            if pod.get(setting):
                yield f"expected pods with a network and processes of their own, got {setting}"


def _privileges(container: Part) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("privileged"):
        yield "privileged"
    if context.get("procMount") == "Unmasked":
        yield "procMount Unmasked"
    for capability in at(context, "capabilities", "add") or ():
        if capability != "NET_BIND_SERVICE":
            yield f"the capability {capability}"


def _unprivileged(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        for privilege in _privileges(container):
            yield f"expected container {container['name']} to have no power over its host, got {privilege}"


def _no_host_paths(declared: Declared) -> Iterator[str]:
    for pod in pods(declared):
        for volume in pod.get("volumes") or ():
            if path := at(volume, "hostPath", "path"):
                yield f"expected volume {volume['name']} not to be a folder of the host, got {path}"


def _own_account(declared: Declared) -> Iterator[str]:
    for pod in pods(declared):
        if (at(pod, "serviceAccountName") or "default") == "default":
            yield "expected a service account for these pods, got that which every pod of the namespace has"


def _no_token(declared: Declared) -> Iterator[str]:
    for pod in pods(declared):
        if switched_on(pod, "automountServiceAccountToken", unsaid=True):
            yield "expected automountServiceAccountToken to be false, got nothing or true"
        for volume in every(pod, "volumes"):
            lifetimes = [at(token, "expirationSeconds") or _TOKEN_SECONDS for token in _projected_tokens(volume)]
            if lifetimes and (max(lifetimes) > _TOKEN_SECONDS or _mounts(pod, at(volume, "name")) != {_TOKEN_PATH}):
                expected = f"at {_TOKEN_PATH} alone and for {_TOKEN_SECONDS} s at most, as the trainer has it"
                yield f"expected a token {expected}, got another in volume {at(volume, 'name')}"


def _projected_tokens(volume: Part) -> list[Part]:
    found = [at(source, "serviceAccountToken") for source in every(volume, "projected", "sources")]
    return [token for token in found if token is not None]


def _mounts(pod: Part, volume: str) -> set[str]:
    """Where the containers of a pod have a volume."""
    mounts = [mount for container in containers_of(pod) for mount in every(container, "volumeMounts")]
    return {at(mount, "mountPath") for mount in mounts if at(mount, "name") == volume}


def _own_namespace(declared: Declared) -> Iterator[str]:
    namespace = at(declared.properties, "metadata", "namespace") or "default"
    if namespace in _SYSTEM_NAMESPACES:
        yield f"expected a namespace of its own, got {namespace}"


def _no_secrets(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        for variable in container.get("env") or ():
            if _is_secret(variable["name"], variable.get("value")):
                yield f"expected {variable['name']} to come from a Secret or a service, got its value in the plan"
        for kind in ("command", "args"):
            if any(_is_secret("", word) for word in every(container, kind)):
                yield f"expected no credential in {kind} of container {container['name']}, got what looks like one"


def _no_secrets_in_files(config_map: Declared) -> Iterator[str]:
    for name, value in (config_map.properties.get("data") or {}).items():
        if _is_secret("", value):
            yield f"expected {name} to hold no credential, got what looks like one"


def _is_secret(name: str, value: Any) -> bool:
    if not is_known(value) or not value:
        return False
    return bool(_SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value))


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "image-by-digest",
            Severity.HIGH,
            "Pods name their image by digest",
            why="A tag can move: a host that is replaced would run something else than its peers.",
            fix="Set image.reference of the stack file to REPOSITORY@sha256:DIGEST, or let the program build it.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/about-container-images",
        ),
        OBJECTS_WITH_PODS,
        _by_digest,
    ),
    ResourceRule(
        must(
            "pod-requests",
            Severity.MEDIUM,
            "Pods say what they need",
            why="A pod without requests takes from the trainer of its host, and TPU chips are never shared.",
            fix="Set requests for CPU and memory, and the same number of chips as request and limit.",
            link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        ),
        OBJECTS_WITH_PODS,
        _requests,
    ),
    ResourceRule(
        must(
            "no-host-namespaces",
            Severity.HIGH,
            "Pods share neither network nor processes with their host",
            why="On the host's network a pod acts as the node's service account and reaches what the node reaches.",
            fix="Set job.host_network to false, or grant an exception for the bandwidth that it brings.",
            link=_STANDARDS,
        ),
        OBJECTS_WITH_PODS,
        _own_host,
    ),
    ResourceRule(
        must(
            "no-privileges",
            Severity.CRITICAL,
            "Containers have no power over their host",
            why="A privileged container is root on the node, with the credentials of every pod there.",
            fix="Remove privileged, procMount and the capability; TPU pods need none of them.",
            link=_STANDARDS,
        ),
        OBJECTS_WITH_PODS,
        _unprivileged,
    ),
    ResourceRule(
        must(
            "no-host-paths",
            Severity.HIGH,
            "Pods mount no folder of their host",
            why="The host's folders hold kubelet's credentials and the runtime's socket.",
            fix="Use an emptyDir, or a bucket by the Cloud Storage FUSE driver.",
            link=_STANDARDS,
        ),
        OBJECTS_WITH_PODS,
        _no_host_paths,
    ),
    ResourceRule(
        must(
            "own-service-account",
            Severity.HIGH,
            "Pods have a service account for their purpose",
            why="What is granted to the namespace's default account is granted to every pod in it.",
            fix="Set serviceAccountName.",
            link="https://kubernetes.io/docs/concepts/security/service-accounts/",
        ),
        OBJECTS_WITH_PODS,
        _own_account,
    ),
    ResourceRule(
        must(
            "no-api-token",
            Severity.MEDIUM,
            "Jobs have no token for the API server but that by which a trainer marks its own node",
            why="A trainer runs code from many hands and has no other business with the cluster.",
            fix="Set automountServiceAccountToken to false and project no serviceAccountToken but infra/pods.py's.",
            link="https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/",
        ),
        (JOB_SET, JOB, CRON_JOB, POD),
        _no_token,
    ),
    ResourceRule(
        must(
            "own-namespace",
            Severity.MEDIUM,
            "Pods are in a namespace of their own",
            why="Grants, quotas and policies are by namespace, and those of the system are not yours to hold to them.",
            fix="Name the namespace of a team.",
            link="https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/",
        ),
        OBJECTS_WITH_PODS,
        _own_namespace,
    ),
    ResourceRule(
        must(
            "no-plain-secrets",
            Severity.HIGH,
            "No credential is written into a plan",
            why="It would lie in Pulumi's state, in the cluster, and in every log that shows the pod.",
            fix="Use workload identity, or name it under secrets of the stack file.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/secrets",
        ),
        OBJECTS_WITH_PODS,
        _no_secrets,
    ),
    ResourceRule(
        must(
            "no-secrets-in-config-maps",
            Severity.HIGH,
            "No credential lies in a ConfigMap",
            why="Whoever may list a namespace reads its ConfigMaps, and so do Pulumi's state and its diffs.",
            fix="Use workload identity, or mount a Secret that is made outside the plan.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/secrets",
        ),
        (_CONFIG_MAP,),
        _no_secrets_in_files,
    ),
)

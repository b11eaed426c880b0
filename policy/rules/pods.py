"""Rules on pods, whatever object declares them.

Namespaces enforce most of what `confined-pods` requires. The rule reports it before any chips are bought.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from infra.stack.names import TPU_RESOURCE
from policy.rule import CONFIG_MAP, JOB_SET, Check, Declared, ResourceRule, Rule, at, every, is_known, namespace, show

_POD, _JOB, _CRON_JOB = "kubernetes:core/v1:Pod", "kubernetes:batch/v1:Job", "kubernetes:batch/v1:CronJob"
_PODS_AT: Mapping[str, str] = {
    _POD: "spec",
    _JOB: "spec.template.spec",
    _CRON_JOB: "spec.jobTemplate.spec.template.spec",
    "kubernetes:core/v1:ReplicationController": "spec.template.spec",
    "kubernetes:apps/v1:DaemonSet": "spec.template.spec",
    "kubernetes:apps/v1:Deployment": "spec.template.spec",
    "kubernetes:apps/v1:ReplicaSet": "spec.template.spec",
    "kubernetes:apps/v1:StatefulSet": "spec.template.spec",
}
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_TOKEN_PATH, _TOKEN_SECONDS = "/mnt", 3600
"""Path and lifetime of the trainer's token. Tests compare them with those that `infra.stack.pods` renders."""
_SECRET_NAME = re.compile(r"PASSW|SECRET|TOKEN$|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY")
"""TOKEN only at the end: MAX_TOKENS and TOKENIZER contain no credential."""
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\"private_key\"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{35}|\bya29\.|\bGOCSPX-"
    r"|\bgh[opsu]_\w{36}|\bgithub_pat_|\bglpat-|\bhf_\w{30}|\bpul-[0-9a-f]{40}|\bxox[abprs]-|\bsk-[\w-]{20}"
)
"""Prefixes of well-known credentials."""
_STANDARDS = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"
_SECRETS = "https://cloud.google.com/kubernetes-engine/docs/concepts/secrets"

type Part = Mapping[str, Any]


def _of_pods(check: Callable[[Part], Iterable[str]], *types: str) -> Mapping[str, Check]:
    """Return the check of a pod's spec by type of object; without types, all that declare pods."""

    def checked(declared: Declared) -> Iterator[str]:
        for pod in _pods(declared):
            yield from check(pod)

    return dict.fromkeys(types or (*_PODS_AT, JOB_SET), checked)


def _of_containers(check: Callable[[Part, Part], Iterable[str]]) -> Mapping[str, Check]:

    def checked(pod: Part) -> Iterator[str]:
        for container in _containers(pod):
            yield from (f"container {container['name']}: {message}" for message in check(pod, container))

    return _of_pods(checked)


def _pods(declared: Declared) -> Iterator[Part]:
    """Yield the specs of its pods: for a JobSet, one for each of its replicated jobs."""
    if declared.type == JOB_SET:
        for job in every(declared.properties, "spec", "replicatedJobs"):
            yield at(job, "template", "spec", "template", "spec") or {}
    else:
        yield at(declared.properties, *_PODS_AT[declared.type].split(".")) or {}


def _containers(pod: Part) -> Iterator[Part]:
    for kind in _CONTAINERS:
        yield from pod.get(kind) or ()


def _by_digest(_: Part, container: Part) -> Iterator[str]:
    image = container.get("image")
    # The digest of an image that the program builds is not known yet.
    if is_known(image) and "@sha256:" not in str(image):
        yield f"expected an image by digest, got {image}"


def _requests(_: Part, container: Part) -> Iterator[str]:
    requests, limits = (at(container, "resources", kind) or {} for kind in ("requests", "limits"))
    if missing := [name for name in ("cpu", "memory") if name not in {*requests, *limits}]:
        yield f"expected requests for CPU and memory, got none for {' and '.join(missing)}"
    wanted, given = at(requests, TPU_RESOURCE), at(limits, TPU_RESOURCE)
    if wanted is not None and str(wanted) != str(given):
        yield f"expected the same number of chips as limit and as request, {wanted}, got {show(given)}"


def _own_host(pod: Part) -> Iterator[str]:
    for setting in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(setting):
            yield f"expected a network and processes of its own, got {setting}"


def _no_privileges(_: Part, container: Part) -> Iterator[str]:
    context = container.get("securityContext") or {}
    added = [name for name in every(context, "capabilities", "add") if name != "NET_BIND_SERVICE"]
    powers = {
        "privileged": context.get("privileged"),
        "procMount Unmasked": context.get("procMount") == "Unmasked",
        **{f"the capability {name}": True for name in added},
    }
    yield from (f"expected no power over the host, got {power}" for power, given in powers.items() if given)


def _no_host_paths(pod: Part) -> Iterator[str]:
    for volume in every(pod, "volumes"):
        if path := at(volume, "hostPath", "path"):
            yield f"expected volume {volume['name']} not to be a folder of the host, got {path}"


def _no_root(pod: Part, container: Part) -> Iterator[str]:
    if not _setting(pod, container, "runAsNonRoot"):
        yield "expected runAsNonRoot to be true, got nothing or false"
    elif _setting(pod, container, "runAsUser") == 0:
        yield "expected a user other than root, got runAsUser 0"


def _confined(pod: Part, container: Part) -> Iterator[str]:
    context = at(container, "securityContext")
    if "ALL" not in (dropped := every(context, "capabilities", "drop")):
        yield f"expected capabilities.drop to have ALL, got {', '.join(dropped) or 'nothing'}"
    # The API server refuses a privileged container with this field; `no-privileges` reports such a container.
    if not at(context, "privileged") and at(context, "allowPrivilegeEscalation") in (None, True):
        yield "expected allowPrivilegeEscalation to be false, got nothing or true"
    if not at(context, "readOnlyRootFilesystem"):
        yield "expected readOnlyRootFilesystem to be true, got nothing or false"
    # The runtime has its own AppArmor profile by default; for seccomp GKE Standard has none.
    if (seccomp := at(_setting(pod, container, "seccompProfile"), "type")) in (None, "Unconfined"):
        yield f"expected a seccompProfile of the runtime, got {show(seccomp)}"
    if at(_setting(pod, container, "appArmorProfile"), "type") == "Unconfined":
        yield "expected an appArmorProfile of the runtime, got Unconfined"


def _setting(pod: Part, container: Part, name: str) -> Any:
    """Return the effective value for a container: its own setting, or else that of its pod."""
    own = at(container, "securityContext", name)
    return at(pod, "securityContext", name) if own is None else own


def _own_account(pod: Part) -> Iterator[str]:
    if (at(pod, "serviceAccountName") or "default") == "default":
        yield "expected a service account for these pods, got the one of every pod in the namespace"


def _own_namespace(declared: Declared) -> Iterator[str]:
    if (found := namespace(declared) or "default") in _SYSTEM_NAMESPACES:
        yield f"expected a namespace of its own, got {found}"


def _no_token(pod: Part) -> Iterator[str]:
    if at(pod, "automountServiceAccountToken") in (None, True):
        yield "expected automountServiceAccountToken to be false, got nothing or true"
    mounts = [mount for container in _containers(pod) for mount in every(container, "volumeMounts")]
    for volume in every(pod, "volumes"):
        tokens = [at(source, "serviceAccountToken") for source in every(volume, "projected", "sources")]
        seconds = [at(token, "expirationSeconds") or _TOKEN_SECONDS for token in tokens if token is not None]
        paths = {at(mount, "mountPath") for mount in mounts if at(mount, "name") == at(volume, "name")}
        if seconds and (max(seconds) > _TOKEN_SECONDS or paths != {_TOKEN_PATH}):
            expected = f"only at {_TOKEN_PATH} and for {_TOKEN_SECONDS} seconds or less, as the trainer has it"
            yield f"expected a token {expected}, got another one in volume {at(volume, 'name')}"


def _no_secrets(_: Part, container: Part) -> Iterator[str]:
    for variable in every(container, "env"):
        if _is_secret(variable["name"], variable.get("value")):
            yield f"expected {variable['name']} to come from a Secret or a service, got its value in the plan"
    for kind in ("command", "args"):
        if any(_is_secret("", word) for word in every(container, kind)):
            yield f"expected no credential in {kind}, got something that looks like one"


def _no_secrets_in_files(config_map: Declared) -> Iterator[str]:
    for name, value in (at(config_map.properties, "data") or {}).items():
        if _is_secret("", value):
            yield f"expected no credential in {name}, got something that looks like one"


def _is_secret(name: str, value: Any) -> bool:
    if not is_known(value) or not value:
        return False
    return bool(_SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value))


RULES: tuple[Rule, ...] = (
    ResourceRule(
        id="image-by-digest",
        severity="high",
        title="Pods name their image by digest",
        why="A tag can move, and a host that is replaced would run another program than the other hosts.",
        fix="Set image.reference of the stack file to REPOSITORY@sha256:DIGEST, or let the program build the image.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/about-container-images",
        checks=_of_containers(_by_digest),
    ),
    ResourceRule(
        id="pod-requests",
        severity="medium",
        title="Pods request what they need",
        why="A pod without requests takes CPU and memory from the trainer on its host, and chips are never shared.",
        fix="Set requests for CPU and memory, and the same number of chips as request and limit.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        checks=_of_containers(_requests),
    ),
    ResourceRule(
        id="no-host-namespaces",
        severity="high",
        title="Pods share neither network nor processes with their host",
        why="On the host's network a pod acts as the node's service account and reaches what the node reaches.",
        fix="Set job.host_network to false, or grant an exception for the bandwidth that it gives.",
        link=_STANDARDS,
        checks=_of_pods(_own_host),
    ),
    ResourceRule(
        id="no-privileges",
        severity="critical",
        title="Containers have no power over their host",
        why="A privileged container is root on the node, with the credentials of every pod there.",
        fix="Remove privileged, procMount and the capability; TPU pods need none of them.",
        link=_STANDARDS,
        checks=_of_containers(_no_privileges),
    ),
    ResourceRule(
        id="no-host-paths",
        severity="high",
        title="Pods mount no folder of their host",
        why="The folders of the host contain kubelet's credentials and the socket of the runtime.",
        fix="Use an emptyDir, or a bucket through the Cloud Storage FUSE driver.",
        link=_STANDARDS,
        checks=_of_pods(_no_host_paths),
    ),
    ResourceRule(
        id="no-root",
        severity="high",
        title="Nothing in a pod runs as root",
        why="Root in a container needs only one bug of the kernel or the runtime to be root on the node.",
        fix="Set securityContext.runAsNonRoot, and a runAsUser other than 0.",
        link=_STANDARDS + "#restricted",
        checks=_of_containers(_no_root),
    ),
    ResourceRule(
        id="confined-pods",
        severity="medium",
        title="Containers have no capabilities, gain no privileges, write only to volumes, and are confined",
        why="The runtime leaves each container fourteen capabilities of root, GKE Standard filters no system calls by"
        " default, a setuid program can gain privileges, and an intruder could change the program.",
        fix="Set capabilities.drop [ALL], allowPrivilegeEscalation false, readOnlyRootFilesystem true and"
        " seccompProfile.type RuntimeDefault, and mount an emptyDir where the program writes.",
        link=_STANDARDS + "#restricted",
        checks=_of_containers(_confined),
        replaces=("no-capabilities", "no-privilege-escalation", "read-only-root"),
    ),
    ResourceRule(
        id="own-service-account",
        severity="high",
        title="Pods have a service account and a namespace for their purpose",
        why="Every pod of a namespace gets what its default account is granted, and quotas, grants and policies of the"
        " system's namespaces are not made for your pods.",
        fix="Set serviceAccountName, and name the namespace of a team.",
        link="https://kubernetes.io/docs/concepts/security/service-accounts/",
        checks={kind: (check, _own_namespace) for kind, check in _of_pods(_own_account).items()},
        replaces=("own-namespace",),
    ),
    ResourceRule(
        id="no-api-token",
        severity="medium",
        title="Jobs have no token for the API server except the one with which a trainer marks its own node",
        why="A trainer runs code of many authors, which needs nothing else from the cluster.",
        fix="Set automountServiceAccountToken to false. Project only the serviceAccountToken of infra/stack/pods.py.",
        link="https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/",
        checks=_of_pods(_no_token, JOB_SET, _JOB, _CRON_JOB, _POD),
    ),
    ResourceRule(
        id="no-plain-secrets",
        severity="high",
        title="No plan contains a credential",
        why="Pulumi's state, the cluster, and every log or diff that shows the pod or the ConfigMap would contain it.",
        fix="Use workload identity, or name the credential under secrets of the stack file.",
        link=_SECRETS,
        checks={**_of_containers(_no_secrets), CONFIG_MAP: _no_secrets_in_files},
        replaces=("no-secrets-in-config-maps",),
    ),
)

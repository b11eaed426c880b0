"""What is taken from the processes of pods, whichever object declares them.

Owns what the Pod Security level `restricted` asks of security contexts, and a little more. The API server
would refuse such a pod only once its chips are there, and bought.
"""

from collections.abc import Iterator

from policy.resources import at, every, switched_on
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must
from policy.rules.security.pod_specs import OBJECTS_WITH_PODS, Part, containers, containers_of, pods

_CONTEXT = "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
_RESTRICTED = "https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"
_ROOT = 0


def _no_root(declared: Declared) -> Iterator[str]:
    for pod in pods(declared):
        for container in containers_of(pod):
            if not _said(pod, container, "runAsNonRoot"):
                yield f"expected container {container['name']} to set runAsNonRoot, got nothing or false"
            elif _said(pod, container, "runAsUser") == _ROOT:
                yield f"expected container {container['name']} to run as a user, got runAsUser 0"


def _no_capabilities(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        dropped = every(container, "securityContext", "capabilities", "drop")
        if "ALL" not in dropped:
            got = ", ".join(dropped) or "none"
            yield f"expected container {container['name']} to drop ALL capabilities, got {got}"


def _no_escalation(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        if switched_on(container, "securityContext", "allowPrivilegeEscalation", unsaid=True):
            name = container["name"]
            yield f"expected container {name} to set allowPrivilegeEscalation to false, got nothing or true"


def _confined(declared: Declared) -> Iterator[str]:
    for part in (*pods(declared), *containers(declared)):
        for profile in ("seccompProfile", "appArmorProfile"):
            if at(part, "securityContext", profile, "type") == "Unconfined":
                yield f"expected the runtime's {profile}, got Unconfined"
    for pod in pods(declared):
        for container in containers_of(pod):
            # Of AppArmor the runtime has its own unsaid; of seccomp GKE Standard gives none unsaid.
            if _said(pod, container, "seccompProfile") is None:
                yield f"expected container {container['name']} to name a seccompProfile, got none"


def _read_only(declared: Declared) -> Iterator[str]:
    for container in containers(declared):
        if not switched_on(container, "securityContext", "readOnlyRootFilesystem", unsaid=False):
            yield f"expected container {container['name']} to set readOnlyRootFilesystem, got nothing or false"


def _said(pod: Part, container: Part, setting: str) -> object:
    """What holds for a container: its own, else its pod's."""
    own = at(container, "securityContext", setting)
    return at(pod, "securityContext", setting) if own is None else own


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "no-root",
            Severity.HIGH,
            "Nothing in a pod runs as root",
            why="Root in a container is root on its node after one bug of the kernel or the runtime.",
            fix="Set securityContext.runAsNonRoot, and a runAsUser that is not 0.",
            link=_RESTRICTED,
        ),
        OBJECTS_WITH_PODS,
        _no_root,
    ),
    ResourceRule(
        must(
            "no-capabilities",
            Severity.MEDIUM,
            "Containers drop the rights of root one by one",
            why="The runtime leaves fourteen of them to every container, raw network packets among them.",
            fix="Set securityContext.capabilities.drop to [ALL].",
            link=_RESTRICTED,
        ),
        OBJECTS_WITH_PODS,
        _no_capabilities,
    ),
    ResourceRule(
        must(
            "no-privilege-escalation",
            Severity.MEDIUM,
            "Containers gain no privileges while they run",
            why="A setuid program in the image would otherwise give more than the pod was granted.",
            fix="Set securityContext.allowPrivilegeEscalation to false.",
            link=_CONTEXT,
        ),
        OBJECTS_WITH_PODS,
        _no_escalation,
    ),
    ResourceRule(
        must(
            "confined-pods",
            Severity.MEDIUM,
            "Pods are confined by the runtime's profiles",
            why="Unconfined pods reach system calls that only exploits use, and GKE Standard confines none unasked.",
            fix="Set securityContext.seccompProfile.type to RuntimeDefault, and no profile to Unconfined.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/seccomp-in-gke",
        ),
        OBJECTS_WITH_PODS,
        _confined,
    ),
    ResourceRule(
        must(
            "read-only-root",
            Severity.LOW,
            "Containers write to volumes alone",
            why="Whoever gets in could otherwise change the program that runs.",
            fix="Set securityContext.readOnlyRootFilesystem, and mount an emptyDir where the program writes.",
            link=_CONTEXT,
        ),
        OBJECTS_WITH_PODS,
        _read_only,
    ),
)

"""Plans that keep and break the rules of `policy.rules.pods`."""

from typing import Any

from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD, TOKEN_SECONDS
from policy.rule import CONFIG_MAP, Declared
from tests.policy.example import Example, declared
from tests.policy.examples.plan import POD, Path, broken, having, job_set, several
from workloads.spec import API_ACCESS_PATH

_SECRETS, _TOKEN = "no-plain-secrets", "no-api-token"
_DEPLOYED = ("spec", "template", "spec")
_TPUS = {"google.com/tpu": "4"}
_CONTEXT = ("containers", 0, "securityContext")


def _spec() -> dict[str, Any]:
    container = {
        "name": "trainer",
        "image": f"example.com/trainer@sha256:{'0' * 64}",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi", **_TPUS}, "limits": _TPUS},
        "securityContext": {**CONFINED_CONTAINER},
    }
    return {
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": False,
        "securityContext": {**CONFINED_POD},
        "containers": [container],
    }


def _deployment(name: str, namespace: str = "research") -> Declared:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _spec()}
    properties = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    return declared("kubernetes:apps/v1:Deployment", name, properties)


def _jobset(name: str) -> Declared:
    return having(job_set(name), POD, {**_spec(), "restartPolicy": "Never"})


def _pods(rule: str, says: str, *changes: tuple[tuple[str | int, ...], Any]) -> dict[str, Example]:
    """Return an example with each change of the pod's spec in a JobSet and in a Deployment."""
    jobs = broken(rule, _jobset, *(((*POD, *path), value) for path, value in changes))
    deployments = broken(rule, _deployment, *(((*_DEPLOYED, *path), value) for path, value in changes))
    return {rule: Example((_jobset(rule), _deployment(rule)), (*jobs, *deployments), says)}


def _with_token(name: str, path: str, seconds: int) -> Declared:
    """Return a job whose pods request a token."""
    sources = [{"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}]
    job = having(_jobset(name), (*POD, "volumes"), [{"name": "access", "projected": {"sources": sources}}])
    return having(job, (*POD, "containers", 0, "volumeMounts"), [{"name": "access", "mountPath": path}])


def _config_map(name: str) -> Declared:
    metadata = {"name": name, "namespace": "research"}
    properties = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings": "steps: 100"}}
    return declared(CONFIG_MAP, name, properties)


def _env(**variables: str) -> tuple[Path, object]:
    return (*POD, "containers", 0, "env"), [{"name": name, "value": value} for name, value in variables.items()]


EXAMPLES: dict[str, Example] = {
    **_pods(
        "image-by-digest",
        "expected an image by digest, got example.com/trainer:latest",
        (("containers", 0, "image"), "example.com/trainer:latest"),
    ),
    **_pods(
        "pod-requests",
        "got none for cpu and memory",
        (("containers", 0, "resources"), {"requests": _TPUS, "limits": _TPUS}),
        (("containers", 0, "resources", "limits"), {}),
    ),
    **_pods("no-host-namespaces", "got hostNetwork", (("hostNetwork",), True), (("hostPID",), True)),
    **_pods(
        "no-privileges",
        "got the capability SYS_ADMIN",
        ((*_CONTEXT, "capabilities"), {"add": ["SYS_ADMIN"], "drop": ["ALL"]}),
        ((*_CONTEXT, "privileged"), True),
        ((*_CONTEXT, "procMount"), "Unmasked"),
    ),
    **_pods("no-host-paths", "got /var/run", (("volumes",), [{"name": "runtime", "hostPath": {"path": "/var/run"}}])),
    **_pods("no-root", "got runAsUser 0", ((*_CONTEXT, "runAsUser"), 0), (("securityContext", "runAsNonRoot"), None)),
    **_pods(
        "confined-pods",
        "expected capabilities.drop to have ALL, got NET_RAW",
        ((*_CONTEXT, "capabilities", "drop"), ["NET_RAW"]),
        ((*_CONTEXT, "allowPrivilegeEscalation"), None),
        ((*_CONTEXT, "readOnlyRootFilesystem"), False),
        (("securityContext", "seccompProfile", "type"), "Unconfined"),
        (("securityContext", "seccompProfile"), None),
        (("securityContext", "appArmorProfile"), {"type": "Unconfined"}),
    ),
    **several(
        "own-service-account",
        "the one of every pod in the namespace",
        (_jobset, ((*POD, "serviceAccountName"), "")),
        also=(_deployment("own-service-account", namespace="kube-system"),),
    ),
    _TOKEN: Example(
        (_jobset(_TOKEN), _with_token(f"{_TOKEN}-trainer", API_ACCESS_PATH, TOKEN_SECONDS)),
        (
            *broken(_TOKEN, _jobset, ((*POD, "automountServiceAccountToken"), True)),
            _with_token(f"{_TOKEN}-elsewhere", "/var/run/secrets", TOKEN_SECONDS),
            _with_token(f"{_TOKEN}-long", API_ACCESS_PATH, 31_536_000),
            declared("kubernetes:batch/v1:CronJob", f"{_TOKEN}-nightly", {}),
        ),
        "expected automountServiceAccountToken to be false",
    ),
    _SECRETS: Example(
        (having(_jobset(_SECRETS), *_env(MAX_TOKENS="4096", TOKENIZERS_PARALLELISM="true")), _config_map(_SECRETS)),
        (
            *broken(
                _SECRETS,
                _jobset,
                _env(HF_TOKEN="not-a-real-one"),
                ((*POD, "containers", 0, "args"), [f"--key=glpat-{'0' * 20}"]),
            ),
            *broken(_SECRETS, _config_map, ("data.settings", "-----BEGIN RSA PRIVATE KEY-----")),
        ),
        "expected HF_TOKEN to come from a Secret",
    ),
}

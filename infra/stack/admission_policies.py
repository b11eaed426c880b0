"""Admission policies that refuse what RBAC, Pod Security and quotas cannot express.

They apply to every user and controller, because the Job controller creates a member's pods. They are written in CEL
(https://kubernetes.io/docs/reference/using-api/cel/). Tests in tests/chain check them against a real API server.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from infra.stack.controllers import Resources
from infra.stack.manifests import Manifest, manifest, role_binding, service_account
from infra.stack.names import (
    EXCLUSIVE,
    HOST_LABEL,
    JOB_KEY,
    JOBSET_GROUP,
    JOBSET_LABEL,
    KUEUE_API_VERSION,
    NAMESPACE_LABEL,
    NODE_POOL_LABEL,
    QUEUE_LABEL,
    RBAC_GROUP,
    REPLICATED_JOB_LABEL,
    RESTARTS_ANNOTATION,
    SERVICE_ACCOUNT,
    SLICE_GROUP_LABEL,
    SLICES,
    SYSTEM_POOL,
    TPU_RESOURCE,
)
from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD
from infra.stack.settings.jobs import MAX_GRACE_SECONDS
from infra.stack.settings.schema import Team
from workloads.spec import BAD_HOST_CHARACTERS, BAD_HOST_KEY

TRAINERS = "trainers-hold-chips"
PRIORITIES = "jobs-without-pod-priority"
NEIGHBOURS = "pods-leave-others-their-hosts"
ENDS = "jobs-leave-others-their-hosts"
QUEUES = "jobs-name-their-queue"
HOST_NETWORK = "nothing-of-the-host-but-its-network"
SUSPENSION = "workloads-active-or-not"
SECRETS = "secrets-of-jobs"
_API_VERSION = "admissionregistration.k8s.io/v1"
_VOLUMES = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
"""Volumes of the level `restricted`
(https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted)."""
_FIXED_OF_WORKLOADS = (
    "podSets",
    "queueName",
    "priority",
    "priorityClassRef",
    "maximumExecutionTimeSeconds",
    "preemptionGates",
)
"""All fields of a Workload's specification except `active`
(https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/)."""
_FIXED_METADATA = ("labels", "finalizers", "ownerReferences")
type Rule = tuple[str, str, str]
"""API group, resource and operation."""
_NEW_PODS: Rule = ("", "pods", "CREATE")
_NEW_JOBS: Rule = (JOBSET_GROUP, "jobsets", "CREATE")


def _holds_chips(pod: str) -> str:
    """Return the condition that a container of the pod with its spec at `pod` has chips. In a custom resource their
    number may be an integer."""
    chips = f"c.?resources.?limits[?'{TPU_RESOURCE}'].orValue('0')"
    return f"{pod}.?containers.orValue([]).exists(c, quantity(string({chips})).isGreaterThan(quantity('0')))"


_HOLDS_CHIPS = _holds_chips("object.spec")


def team_policies(
    teams: Mapping[str, Team],
    host_network_teams: Collection[str],
    head_limits: Mapping[str, Resources],
    prefix: str = "",
) -> dict[str, Manifest]:
    """Return the policies for the namespaces of the teams by name, each followed by its binding.

    With a `prefix` of names the cluster and its Kueue may be others': then a job must name its queue."""
    namespaces = sorted({team.namespace for team in teams.values()})
    limits = {teams[name].namespace: limit for name, limit in sorted(head_limits.items())}
    policies = {
        TRAINERS: _trainers(namespaces),
        PRIORITIES: _priorities(namespaces),
        SUSPENSION: _suspension(namespaces),
        SECRETS: _secrets(namespaces),
        NEIGHBOURS: _neighbours(namespaces, limits),
        ENDS: _ends(namespaces),
    }
    if host_network_teams:
        policies[HOST_NETWORK] = _host_network(sorted(teams[name].namespace for name in host_network_teams))
    if prefix:
        policies[QUEUES] = _queues(namespaces)
    ordered: dict[str, Manifest] = {}
    for name, written in policies.items():
        metadata = {"metadata": {"name": f"{prefix}{name}"}}
        ordered |= {name: written | metadata, f"{name}-binding": binding(f"{prefix}{name}")}
    return ordered


def policy(
    name: str,
    rules: Sequence[Rule],
    validations: Mapping[str, str],
    *,
    versions: Sequence[str] = ("*",),
    namespaces: Sequence[str] = (),
    only: str | None = None,
    params: tuple[str, str] | None = None,
) -> Manifest:
    """Return a policy that refuses what `rules` match unless all validations are true. Validations map messages to
    expressions.

    `namespaces` and the expression `only` restrict what it applies to. With `versions` the API server first converts
    objects of other versions to these. `params` is an API version and a kind: the validations must be true for each
    object of that kind, which expressions refer to as `params`. Their messages are then expressions too.
    """
    selected = {"key": NAMESPACE_LABEL, "operator": "In", "values": list(namespaces)}
    message_key = "messageExpression" if params else "message"
    matched = [
        {"apiGroups": [group], "apiVersions": list(versions), "resources": [resource], "operations": [operation]}
        for group, resource, operation in rules
    ]
    spec: Manifest = {
        "failurePolicy": "Fail",
        **({"paramKind": {"apiVersion": params[0], "kind": params[1]}} if params else {}),
        "matchConstraints": {
            "resourceRules": matched,
            **({"namespaceSelector": {"matchExpressions": [selected]}} if namespaces else {}),
        },
        **({"matchConditions": [{"name": "only", "expression": only}]} if only else {}),
        "validations": [{message_key: message, "expression": rule} for message, rule in validations.items()],
    }
    return manifest(_API_VERSION, "ValidatingAdmissionPolicy", name, spec=spec)


def binding(
    policy_name: str, name: str | None = None, *, refuses: bool = True, params: Mapping[str, object] | None = None
) -> Manifest:
    """Return the binding that puts a policy in force: it refuses, or only warns. Its default name is the policy's.

    `params` selects the objects of the policy's kind for which the validations must be true.
    """
    spec: Manifest = {
        "policyName": policy_name,
        "validationActions": ["Deny" if refuses else "Warn"],
        **({"paramRef": params} if params else {}),
    }
    return manifest(_API_VERSION, "ValidatingAdmissionPolicyBinding", name or policy_name, spec=spec)


def _trainers(namespaces: Sequence[str]) -> Manifest:
    """A pod may mark its node as bad, so only its chips, which Kueue counts, may have brought it to that node.

    A pod without a token, such as the head of a Pathways job, can mark no node, wherever it runs.
    """
    token = "s, has(s.serviceAccountToken)"
    return policy(
        TRAINERS,
        [_NEW_PODS],
        {
            f"a pod of the account {SERVICE_ACCOUNT} holds {TPU_RESOURCE}, or has no token": (
                f"{_HOLDS_CHIPS}"
                f" || !object.spec.?volumes.orValue([]).exists(v, v.?projected.?sources.orValue([]).exists({token}))"
            ),
            f"a pod of the account {SERVICE_ACCOUNT} leaves nodeName to the scheduler": "!has(object.spec.nodeName)",
        },
        namespaces=namespaces,
        only=f"object.spec.?serviceAccountName.orValue('') == '{SERVICE_ACCOUNT}'",
    )


def _priorities(namespaces: Sequence[str]) -> Manifest:
    """If a JobSet has no queue priority, Kueue uses the priority of its pods before any of them is refused
    (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go)."""
    named = "job.?template.?spec.?template.?spec.?priorityClassName.orValue('')"
    return policy(
        PRIORITIES,
        [_NEW_JOBS],
        {
            "pods of a job name no priorityClassName; its priority is the label kueue.x-k8s.io/priority-class": (
                f"object.spec.?replicatedJobs.orValue([]).all(job, {named} == '')"
            )
        },
        namespaces=namespaces,
    )


def _queues(namespaces: Sequence[str]) -> Manifest:
    """The Kueue of a stack holds back jobs without a queue. That of others need not, and such a job would run on chips
    of other teams."""
    return policy(
        QUEUES,
        [_NEW_JOBS],
        {f"a job has the label {QUEUE_LABEL}": f"'{QUEUE_LABEL}' in object.metadata.?labels.orValue({{}})"},
        namespaces=namespaces,
    )


def _suspension(namespaces: Sequence[str]) -> Manifest:
    """Users who may change Workloads but not queues, such as members of a team, may only suspend and resume jobs, and
    keep the causes of their restarts.

    Otherwise they could give their jobs any priority, and any number of chips while they wait in the queue.
    """
    group, _, version = KUEUE_API_VERSION.partition("/")
    fixed = [f"spec.?{field}" for field in _FIXED_OF_WORKLOADS] + [f"metadata.?{field}" for field in _FIXED_METADATA]
    new, old = (f"{each}.metadata.?annotations.orValue({{}})" for each in ("object", "oldObject"))
    # Neither has another annotation or value than the other one.
    annotations = [
        f"{one}.all(name, name == '{RESTARTS_ANNOTATION}' || (name in {other} && {one}[name] == {other}[name]))"
        for one, other in ((new, old), (old, new))
    ]
    return policy(
        SUSPENSION,
        [(group, "workloads", "UPDATE")],
        {
            f"of a workload a member changes spec.active, {RESTARTS_ANNOTATION} and nothing else": " && ".join(
                [*(f"object.{path} == oldObject.{path}" for path in fixed), *annotations]
            )
        },
        versions=[version],
        namespaces=namespaces,
        only=f"!authorizer.group('{group}').resource('clusterqueues').check('update').allowed()",
    )


def _secrets(namespaces: Sequence[str]) -> Manifest:
    """Members cannot read Secrets, but may create one for the key of a call. The Secret is deleted with its JobSet.

    A Secret of type `kubernetes.io/service-account-token` would receive a token that never expires.
    """
    return policy(
        SECRETS,
        [("", "secrets", "CREATE")],
        {
            "a Secret that a member creates has the type Opaque and is owned by a JobSet": (
                "object.?type.orValue('Opaque') == 'Opaque'"
                " && object.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == 'JobSet')"
            )
        },
        namespaces=namespaces,
        only="!authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()",
    )


def _neighbours(namespaces: Sequence[str], limits: Mapping[str, Resources]) -> Manifest:
    """Required anti-affinity of one pod keeps all pods that it selects out of every domain of its topology key.

    The only terms across namespaces are those that reserve a node pool for a slice, of pods with its chips, or a system
    node for a head (`infra.stack.pods`, and JobSet's exclusive topology). They select pods of jobs. The CPU and memory
    of a slice's hosts also belong to its job: a pod without chips may run there only as the head of that job.
    Everywhere else such a pod is limited, because Kueue counts only chips."""
    on_system = f"object.spec.?nodeSelector[?'{NODE_POOL_LABEL}'].orValue('') == '{SYSTEM_POOL}'"
    place = (
        f"(t.topologyKey == '{NODE_POOL_LABEL}' && {_HOLDS_CHIPS} || t.topologyKey == '{HOST_LABEL}' && {on_system})"
        f" && t.?labelSelector.?matchExpressions.orValue([])"
        f".exists(e, e.key in ['{JOB_KEY}', '{JOBSET_LABEL}'] && e.operator in ['In', 'Exists'])"
    )
    own = "!has(t.namespaceSelector) && t.?namespaces.orValue([]).all(n, n == request.namespace)"
    terms = [f"object.spec.?affinity.?{kind}" for kind in ("podAffinity", "podAntiAffinity")]
    required = [f"{kind}.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])" for kind in terms]
    preferred = [f"{kind}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])" for kind in terms]
    tolerated = f"object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') in ['', '{TPU_RESOURCE}'])"
    beside = (
        f"{required[0]}.exists(t, t.topologyKey == '{HOST_LABEL}' && {own}"
        f" && '{JOBSET_LABEL}' in t.?labelSelector.?matchLabels.orValue({{}})"
        f" && t.labelSelector.matchLabels[?'{REPLICATED_JOB_LABEL}'].orValue('') == '{SLICES}')"
    )
    within = [f"{found}.all(t, {own} || {place})" for found in required]
    within += [f"{found}.map(p, p.podAffinityTerm).all(t, {own})" for found in preferred]
    return policy(
        NEIGHBOURS,
        [_NEW_PODS],
        {
            "affinity to pods of other namespaces is that of a slice to its pool, or of a head to its system node": (
                " && ".join(f"({said})" for said in within)
            ),
            f"a pod without {TPU_RESOURCE} gets to hosts of slices only next to its own job": (
                f"{_HOLDS_CHIPS} || !{tolerated} || {beside}"
            ),
            f"a pod without {TPU_RESOURCE} requests at most the CPU and memory of the team's largest head": (
                f"{_HOLDS_CHIPS} || {beside} || {_limit_requests(limits)}"
            ),
            f"a pod ends within {MAX_GRACE_SECONDS} seconds (terminationGracePeriodSeconds)": (
                f"object.spec.?terminationGracePeriodSeconds.orValue(0) <= {MAX_GRACE_SECONDS}"
            ),
        },
        namespaces=namespaces,
    )


def _ends(namespaces: Sequence[str]) -> Manifest:
    """Return the same rules for JobSets, so that members see the refusal. Controllers create the pods later.

    Kueue counts only chips, so each job may have one pod without chips.
    """
    grace = "job.?template.?spec.?template.?spec.?terminationGracePeriodSeconds.orValue(0)"
    keys = [NODE_POOL_LABEL, HOST_LABEL]
    holds = _holds_chips("job.?template.?spec.?template.?spec")
    one = "job.?replicas.orValue(1) == 1 && job.?template.?spec.?parallelism.orValue(1) == 1"
    owners = ("object.metadata", "job.?template.?metadata")
    of_job, of_one = (f"{owner}.?annotations[?'{EXCLUSIVE}'].orValue('{HOST_LABEL}') in {keys}" for owner in owners)
    jobs = "object.spec.?replicatedJobs.orValue([])"
    return policy(
        ENDS,
        [_NEW_JOBS],
        {
            f"every pod of a job but one, its head, holds {TPU_RESOURCE}": (
                f"{jobs}.exists(job, {holds}) && {jobs}.all(job, {holds} || {one})"
                f" && {jobs}.filter(job, !({holds})).size() <= 1"
            ),
            f"a job has node pools or hosts alone, and nothing larger ({EXCLUSIVE})": (
                f"{of_job} && {jobs}.all(job, {of_one})"
            ),
            f"the pods of a job end within {MAX_GRACE_SECONDS} seconds (terminationGracePeriodSeconds)": (
                f"{jobs}.all(job, {grace} <= {MAX_GRACE_SECONDS})"
            ),
        },
        namespaces=namespaces,
    )


def _limit_requests(limits: Mapping[str, Resources]) -> str:
    cpu = {namespace: f"{limit.millicores}m" for namespace, limit in limits.items()}
    memory = {namespace: f"{limit.memory_mib}Mi" for namespace, limit in limits.items()}
    return f"{_requests_at_most('cpu', cpu)} && {_requests_at_most('memory', memory)}"


def _requests_at_most(resource: str, limits: Mapping[str, str]) -> str:
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    requested = f"quantity(c.?resources.?requests[?'{resource}'].orValue('0')).asApproximateFloat()"
    limit = f"{{{', '.join(f"'{namespace}': '{most}'" for namespace, most in limits.items())}}}[request.namespace]"
    return f"{containers}.map(c, {requested}).sum() <= quantity({limit}).asApproximateFloat()"


def _host_network(namespaces: Sequence[str]) -> Manifest:
    """Replaces the Pod Security level `restricted`, which would refuse the host's network and ports."""
    kinds = [f"object.spec.?{kind}.orValue([])" for kind in ("containers", "initContainers", "ephemeralContainers")]
    return policy(
        HOST_NETWORK,
        [_NEW_PODS, ("", "pods/ephemeralcontainers", "UPDATE")],
        {
            "pods here have the securityContext of the trainer": _is("object.spec", CONFINED_POD),
            "containers here have the securityContext of the trainer": (
                " && ".join(f"{kind}.all(c, {_is('c', CONFINED_CONTAINER)})" for kind in kinds)
            ),
            "pods here share no processes with their host": (
                "!object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)"
            ),
            "pods here mount nothing of their host": (
                f"object.spec.?volumes.orValue([]).all(v, {list(_VOLUMES)}.exists(kind, kind in v))"
            ),
        },
        namespaces=namespaces,
    )


def _is(owner: str, context: Manifest) -> str:
    """Return the condition that an owner has this security context. CEL refuses literals of mixed types without
    `dyn`."""
    items = ", ".join(f"'{key}': dyn({json.dumps(value)})" for key, value in context.items())
    return f"has({owner}.securityContext) && {owner}.securityContext == {{{items}}}"


BAD_HOST = "trainer-marks-bad-host"
"""Name of all four objects that let a trainer mark its node as bad. `workloads.training.quarantine` decides when.

RBAC cannot restrict a role to "its own node" and "this taint". The policy does so with the node name that the API
server writes into pod tokens
(https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens).
"""
_NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Extra field of a user whose token is bound to a pod."""
_FIXED_SPEC = ("podCIDR", "podCIDRs", "providerID", "unschedulable", "configSource", "externalID")
"""All fields of a node's specification except its taints
(https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeSpec)."""
_FIXED_NODE_METADATA = ("labels", "finalizers", "ownerReferences")
"""All of a node's metadata that a client may change, except its annotations."""


def bad_host_objects(teams: Mapping[str, Team], prefix: str = "") -> dict[str, Manifest]:
    """Return the objects for the trainers of all teams, by kind of object."""
    namespaces = sorted({team.namespace for team in teams.values()})
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    name = f"{prefix}{BAD_HOST}"
    trainers = [service_account(SERVICE_ACCOUNT, namespace) for namespace in namespaces]
    return {
        "policy": _bad_host_policy(name, namespaces),
        "policy-binding": binding(name),
        "role": manifest(f"{RBAC_GROUP}/v1", "ClusterRole", name, rules=[rule]),
        "role-binding": role_binding(name, name, trainers),
    }


def _bad_host_policy(name: str, namespaces: list[str]) -> Manifest:
    users = ", ".join(f"'system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}'" for namespace in namespaces)
    node = f"request.userInfo.?extra[?'{_NODE_OF_TOKEN}'].orValue([])"
    others = f"spec.?taints.orValue([]).filter(t, t.key != '{BAD_HOST_KEY}')"
    ours = f"spec.?taints.orValue([]).filter(t, t.key == '{BAD_HOST_KEY}').map(t, t.effect)"
    fixed = [f"spec.?{field}" for field in _FIXED_SPEC] + [f"metadata.?{field}" for field in _FIXED_NODE_METADATA]
    unchanged = [f"object.{path} == oldObject.{path}" for path in fixed]
    unchanged += [_keeps_annotations("object", "oldObject"), _keeps_annotations("oldObject", "object")]
    reason = f"object.metadata.?annotations[?'{BAD_HOST_KEY}'].orValue('')"
    return policy(
        name,
        [("", "nodes", "*")],
        {
            "a trainer changes the node it runs on and no other": (
                f"request.operation == 'UPDATE' && {node} == [request.name]"
            ),
            "a trainer marks nodes of slices alone": f"'{SLICE_GROUP_LABEL}' in oldObject.metadata.labels",
            f"a trainer adds the taint {BAD_HOST_KEY}:NoSchedule and no other": (
                f"object.{others} == oldObject.{others} && object.{ours} == ['NoSchedule']"
            ),
            f"a trainer changes nothing of a node but {BAD_HOST_KEY}": " && ".join(unchanged),
            f"a trainer says why in {BAD_HOST_CHARACTERS} characters": f"size({reason}) <= {BAD_HOST_CHARACTERS}",
        },
        only=f"request.userInfo.username in [{users}]",
    )


def _keeps_annotations(of: str, other: str) -> str:
    annotations = "metadata.?annotations.orValue({})"
    return f"{of}.{annotations}.all(k, k == '{BAD_HOST_KEY}' || {other}.{annotations}[?k] == {of}.{annotations}[?k])"

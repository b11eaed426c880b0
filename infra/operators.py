"""JobSet and Kueue in the cluster: their versions and configuration, and when their webhooks are ready.

Queues and jobs need those webhooks, so they depend on this component.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from infra.stack.controllers import JOBSET, KUEUE, Release, chart_resources
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, MANAGED, RESTART_JOB_GATE
from infra.stack.pods import admitted_pods
from infra.stack.settings.schema import Requeueing
from infra.stack.settings.stack import FleetSpec

BOTH = frozenset({JOBSET.name, KUEUE.name})
PRIORITY = "controllers-of-jobs"
_PRIORITY_VALUE = 1_000_000
"""Priority above pods without a class, such as those of jobs, and far below Kubernetes' own pods."""
_A_WEEK = "168h"
_PREEMPTION_STRATEGIES = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
"""Kueue's defaults, which must be explicit
(https://kueue.sigs.k8s.io/docs/concepts/fair_sharing)."""
_QUEUED_ANNOTATION = "tpu-multislice/queued-pools"
_GATES_ANNOTATION = "tpu-multislice/feature-gates"
_JOBSET_CONFIGURATION = "config.jobset.x-k8s.io/"
_AFTER_CONFIGURATION = {
    "config.kubernetes.io/depends-on": f"/namespaces/{JOBSET_NAMESPACE}/ConfigMap/jobset-controller-config"
}
"""Annotation that orders objects of a chart (https://www.pulumi.com/registry/packages/kubernetes/api-docs/helm/v4/chart)."""
_WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_HAS_CERTIFICATES = "jsonpath={.webhooks[*].clientConfig.caBundle}"


@dataclass(frozen=True)
class OperatorsArgs:
    """Settings that determine the configuration and size of the controllers."""

    spec: FleetSpec
    first_queued: pulumi.Resource | None
    """A queued node pool; `None` if the stack has none."""
    installed: Collection[str]
    """Controllers to install. The others are in the cluster already, and are left alone."""


class Operators(pulumi.ComponentResource):
    """JobSet, then Kueue, each with webhooks that answer."""

    def __init__(self, name: str, args: OperatorsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Operators", name, None, opts)
        self._prefix = name.removesuffix("operators")
        self._priority_name = f"{args.spec.prefix}{PRIORITY}"
        resources = chart_resources(sum(group.hosts for group in args.spec.slices.values()))
        priority = [self._priority()] if args.installed else []
        jobset: list[pulumi.Resource] = []
        if JOBSET.name in args.installed:
            jobset = [self._chart(JOBSET, JOBSET_NAMESPACE, _jobset_values(resources), priority)]
        # At its start, Kueue looks for JobSet's kinds, and for ProvisioningRequest, which it needs for queued pools.
        # When GKE installs that kind is not documented, but it exists after the first such pool.
        before = [*priority, *jobset, *([args.first_queued] if args.first_queued else [])]
        if KUEUE.name in args.installed:
            self._chart(KUEUE, KUEUE_NAMESPACE, _kueue_values(args, resources), before)
        self.register_outputs({})

    def _priority(self) -> kubernetes.scheduling.v1.PriorityClass:
        return kubernetes.scheduling.v1.PriorityClass(
            f"{self._prefix}{PRIORITY}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=self._priority_name),
            value=_PRIORITY_VALUE,
            description="Controllers of jobs find room on the system nodes, whatever the heads of jobs take of them.",
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _chart(
        self, release: Release, namespace: str, values: dict[str, object], after: Sequence[pulumi.Resource]
    ) -> kubernetes.helm.v4.Chart:
        in_namespace = kubernetes.core.v1.Namespace(
            f"{self._prefix}{namespace}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=namespace, labels=admitted_pods("restricted")),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return kubernetes.helm.v4.Chart(
            f"{self._prefix}{release.name}",
            name=release.name,
            chart=release.chart,
            version=release.version,
            namespace=namespace,
            values=values,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[in_namespace, *after],
                transforms=[
                    wait_for_certificates,
                    leave_certificates,
                    restart_slices,
                    partial(prefer_controllers, self._priority_name),
                ],
            ),
        )


def wait_for_certificates(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Make a webhook count as created only once its controller has written its certificate authority.

    Until then the API server refuses every object that the webhook must review.
    """
    if not args.type_.endswith(_WEBHOOK_KINDS):
        return None
    metadata = cast(dict[str, Any], args.props["metadata"])
    annotations = {**metadata.get("annotations", {}), "pulumi.com/waitFor": _HAS_CERTIFICATES}
    return pulumi.ResourceTransformResult(
        {**args.props, "metadata": {**metadata, "annotations": annotations}}, args.opts
    )


def leave_certificates(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Leave the content of Secrets to the controllers that write them.

    JobSet's chart declares its certificates as empty (https://github.com/kubernetes-sigs/jobset/pull/1248). After a
    refresh the next `up` would empty them, and every webhook would fail. An upgrade, which changes the Secret's labels,
    would end in a conflict with the controller.
    """
    if args.type_ != "kubernetes:core/v1:Secret":
        return None
    return pulumi.ResourceTransformResult({key: item for key, item in args.props.items() if key != "data"}, args.opts)


def restart_slices(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Let JobSet restart one Job and leave the others, which its chart has no value for.

    The gate only allows actions that no other job has, and gives every pod a label with the restarts of its Job.
    """
    if args.type_ != "kubernetes:core/v1:ConfigMap":
        return None
    data = cast(dict[str, str], args.props.get("data") or {})
    changed = {key: _gated(text) for key, text in data.items()}
    return None if changed == data else pulumi.ResourceTransformResult({**args.props, "data": changed}, args.opts)


def _gated(text: str) -> str:
    """Return a configuration of JobSet with the gate on; any other text unchanged."""
    found = yaml.safe_load(text)
    if not isinstance(found, dict):
        return text
    configuration = cast(dict[str, Any], found)
    if not str(configuration.get("apiVersion")).startswith(_JOBSET_CONFIGURATION):
        return text
    return yaml.safe_dump({**configuration, "featureGates": {RESTART_JOB_GATE: True}}, sort_keys=False)


def prefer_controllers(priority: str, args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Let the pods of a controller preempt others, by the class `priority`. JobSet's chart has no value for that."""
    if args.type_ != "kubernetes:apps/v1:Deployment":
        return None
    spec = cast(dict[str, Any], args.props["spec"])
    pod = {**spec["template"]["spec"], "priorityClassName": priority}
    changed = {**spec, "template": {**spec["template"], "spec": pod}}
    return pulumi.ResourceTransformResult({**args.props, "spec": changed}, args.opts)


def _jobset_values(resources: Mapping[str, object]) -> dict[str, object]:
    return {
        "image": JOBSET.image,
        "controller": {
            "resources": resources,
            # The chart adds a checksum of its own configuration to the pods, without the gate. An existing stack's
            # controller starts again for this annotation, and then must find the changed configuration.
            "podAnnotations": {_GATES_ANNOTATION: RESTART_JOB_GATE},
            "annotations": _AFTER_CONFIGURATION,
        },
    }


def _kueue_values(args: OperatorsArgs, resources: Mapping[str, object]) -> dict[str, object]:
    configuration = yaml.safe_dump(_kueue_configuration(args), sort_keys=False)
    # The first queued pool of an existing stack restarts Kueue.
    restarts = {"podAnnotations": {_QUEUED_ANNOTATION: "true"}} if args.first_queued else {}
    return {
        "controllerManager": {"manager": {"image": KUEUE.image, "resources": resources, **restarts}},
        "managerConfig": {"controllerManagerConfigYaml": configuration},
    }


def _kueue_configuration(args: OperatorsArgs) -> dict[str, object]:
    """Return Kueue's configuration, which the chart takes as a whole. Values that are missing here are Kueue's
    defaults.

    The chart adds its checksum to the pods, so a change restarts Kueue.
    """
    scheduling = args.spec.scheduling
    fair = {"fairSharing": {"preemptionStrategies": _PREEMPTION_STRATEGIES}} if scheduling.fair_sharing else {}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        # Only the kinds in use: with others, an outage of Kueue would block every pod of the cluster.
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        # In a team's namespace a job without a queue waits until it has one. Otherwise it would run on other teams'
        # chips. The namespaces are selected by label, so that a new team does not restart Kueue.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": MANAGED},
        # Only chips are counted: a pod takes whole hosts, so CPU and memory are never short.
        "resources": {"excludeResourcePrefixes": ["cpu", "memory", "ephemeral-storage"]},
        "waitForPodsReady": {
            **_patience(args.spec),
            "requeuingStrategy": _requeueing(scheduling.requeueing),
        },
        **fair,
    }


def _patience(spec: FleetSpec) -> dict[str, object]:
    """Return how long an admitted job may lack some of its pods before Kueue requeues it.

    Pods that wait for flex-start chips are the request for them. Evicting them would withdraw the request.
    """
    on_request = any(group.capacity.requested_by_pods for group in spec.slices.values())
    # The second timeout is longer: a lost host takes down its slice, and GKE needs a while to rebuild it.
    ready, recovery = (_A_WEEK, _A_WEEK) if on_request else ("30m", "1h")
    scheduling = spec.scheduling
    return {
        "timeout": f"{scheduling.ready_minutes}m" if scheduling.ready_minutes else ready,
        "recoveryTimeout": f"{scheduling.recovery_minutes}m" if scheduling.recovery_minutes else recovery,
    }


def _requeueing(requeueing: Requeueing) -> dict[str, object]:
    return {
        "timestamp": "Eviction",
        **({} if requeueing.limit is None else {"backoffLimitCount": requeueing.limit}),
        "backoffBaseSeconds": requeueing.base_seconds,
        "backoffMaxSeconds": requeueing.max_seconds,
    }

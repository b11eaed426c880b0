"""What must hold of Kueue itself: its configuration, and how it asks for queued capacity."""

import re
from collections.abc import Iterator, Sequence

from infra.names import TPU_RESOURCE
from policy.kueue import Flavor, checks_of, configurations, flavor_names, flavors
from policy.resources import at, every, object_name, of_kind
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule
from policy.slices import tpu_pools

_JOB_SETS = "jobset.x-k8s.io/jobset"
_LEAST_PATIENCE_HOURS = 24
_SECONDS = {"h": 3600, "m": 60, "s": 1}


def _manages_jobs(resources: Sequence[Declared]) -> Iterator[Broken]:
    for settings in configurations(resources):
        if _JOB_SETS not in (frameworks := every(settings, "integrations", "frameworks")):
            yield Broken(f"expected {_JOB_SETS} among integrations.frameworks, got {', '.join(frameworks)}", None)
        if not at(settings, "manageJobsWithoutQueueName"):
            yield Broken("expected manageJobsWithoutQueueName to be true, got nothing or false", None)
        if not at(settings, "managedJobsNamespaceSelector", "matchLabels"):
            yield Broken("expected managedJobsNamespaceSelector with a label of the teams' namespaces, got none", None)


def _patient(resources: Sequence[Declared]) -> Iterator[Broken]:
    slow = any(pool.flex_start and not pool.queued for pool in tpu_pools(resources))
    for settings in configurations(resources) if slow else ():
        timeout = at(settings, "waitForPodsReady", "timeout")
        if timeout is not None and _seconds(timeout) < _LEAST_PATIENCE_HOURS * 3600:
            yield Broken(f"expected waitForPodsReady.timeout of {_LEAST_PATIENCE_HOURS}h or more, got {timeout}", None)


def _seconds(duration: str) -> int:
    """Of a duration as Go writes it, without fractions."""
    return sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)([hms])", duration))


def _requests(resources: Sequence[Declared]) -> Iterator[Broken]:
    queued = [pool for pool in tpu_pools(resources) if pool.queued]
    names = {flavor.name: flavor for flavor in flavors(resources) if any(map(flavor.counts, queued))}
    for queue in of_kind(resources, "ClusterQueue"):
        for name in flavor_names(queue):
            if name in names and not checks_of(queue, name):
                yield Broken(f"expected an admission check on queued flavor {name!r}, got none", queue.urn)
            for check in checks_of(queue, name) if name in names else ():
                yield from (Broken(says, queue.urn) for says in _asked(check, names[name], resources))


def _asked(check_name: str, flavor: Flavor, resources: Sequence[Declared]) -> Iterator[str]:
    """What is wrong with how a check asks for slices of a flavor."""
    checks = {object_name(check): check for check in of_kind(resources, "AdmissionCheck")}
    configs = {object_name(config): config for config in of_kind(resources, "ProvisioningRequestConfig")}
    if check_name not in checks:
        yield f"expected admission check {check_name!r} in the stack, got none"
        return
    config_name = at(checks[check_name].properties, "spec", "parameters", "name")
    spec = at(configs[config_name].properties, "spec") if config_name in configs else None
    if (topology := at(spec, "parameters", "tpu-topology")) != flavor.topology:
        yield f"expected check {check_name!r} to ask for tpu-topology {flavor.topology}, got {topology}"
    if TPU_RESOURCE not in every(spec, "managedResources"):
        yield f"expected check {check_name!r} to manage {TPU_RESOURCE}, it does not"


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "kueue-manages-jobs",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "Kueue holds back every job in the teams' namespaces, and nothing else",
            "A job without a queue would take chips that others were promised; without a selector an outage of Kueue"
            " stops jobs of the whole cluster.",
            "Leave Kueue's configuration to infra.operators.",
            "https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/",
        ),
        _manages_jobs,
    ),
    StackRule(
        About(
            "flex-start-patience",
            Group.QUEUE,
            Severity.MEDIUM,
            Level.ADVISORY,
            "Kueue waits for pods of flex-start as long as chips may take to come",
            "Pods that wait are the request for the chips: to evict them sends the job to the end of the line.",
            "Remove scheduling.ready_minutes, or raise it.",
            "https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/",
        ),
        _patient,
    ),
    StackRule(
        About(
            "queued-slices-requested",
            Group.QUEUE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "Kueue asks for the hosts of queued slices, by their topology",
            "Only a ProvisioningRequest brings nodes of a queued pool: without a check that makes one, pods wait for"
            " ever.",
            "Write capacity: {kind: queued, ...} and let infra.queues declare check and request.",
            "https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/",
        ),
        _requests,
    ),
)

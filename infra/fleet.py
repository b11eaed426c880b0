"""The component `Fleet`: TPU slices in a cluster, and the queues through which teams use them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import pulumi

from infra.gke_cluster import ClusterOutputs
from infra.identity import TrainerAccess, TrainerAccessArgs, project_number, trainers
from infra.monitoring import Monitoring, MonitoringArgs
from infra.objects import child_options, child_prefix, explain_stuck_deletes
from infra.operators import BOTH, Operators, OperatorsArgs
from infra.queues import Queues, QueuesArgs
from infra.slices import TpuSlices, TpuSlicesArgs
from infra.stack.access import Allowance
from infra.stack.controllers import JOBSET
from infra.stack.names import MANAGED_BY
from infra.stack.settings import schema
from infra.stack.settings.errors import FieldError, refuse
from infra.stack.settings.read import check
from infra.stack.settings.stack import FleetSpec, Settings, written_folders


@dataclass(frozen=True, kw_only=True)
class FleetArgs:
    """Slices and teams of a cluster.

    Raises:
        SettingsError: the sections do not fit each other; lists all errors.
    """

    spec: FleetSpec
    cluster: ClusterOutputs
    """Cluster of the fleet: `Foundation.cluster`, or the outputs of another program."""
    allowances: Mapping[str, Allowance] = field(default_factory=dict[str, Allowance])
    """What the pods of a team may do in addition, by team. Default: nothing."""
    limited: bool = False
    """Whether `multislice enforce-budget` may stop the queues of the teams. Default: no."""
    monitoring: bool = True
    """Whether to declare collection of metrics, alerts and dashboard. Default: yes."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the nodes, in addition to `managed-by`. Default: none."""

    def __post_init__(self) -> None:
        refuse(self._errors())

    @classmethod
    def of(cls, settings: Settings, cluster: ClusterOutputs) -> Self:
        """Return the fleet of a stack file."""
        on_hosts, folders = settings.host_network_teams, settings.job_folders
        return cls(
            spec=FleetSpec.of(settings),
            cluster=cluster,
            allowances={
                name: Allowance(
                    pod_level=settings.pod_levels[name],
                    host_network=name in on_hosts,
                    head_limit=settings.head_limits[name],
                    folders=folders[name],
                )
                for name in settings.teams
            },
            limited=settings.budget is not None and settings.budget.usd_total is not None,
            monitoring=settings.monitoring.enabled,
            labels=settings.resource_labels,
        )

    def _errors(self) -> Iterator[FieldError]:
        ranges = schema.Network() if self.cluster.shared else self.cluster.ranges
        yield from check(self.spec.draft(network=ranges))
        if self.cluster.shared and not self.spec.prefix:
            expected, fix = "a prefix, because others use the cluster too", "pass spec.prefix, such as research-"
            yield FieldError("spec.prefix", expected, "none", fix)
        for name, group in self.spec.slices.items() if self.cluster.second_network is None else ():
            if group.second_network:
                expected, fix = "a cluster with a second network", "pass cluster.second_network, or remove it"
                yield FieldError(f"slices.{name}.second_network", expected, "none", fix)
        for name in sorted(self.allowances.keys() - self.spec.teams.keys()):
            yield FieldError(f"allowances.{name}", "the name of a team", repr(name), "rename it, or add the team")


class Fleet(pulumi.ComponentResource):
    """TPU slices, JobSet and Kueue, the queues and access of teams, and monitoring.

    Its options need two providers: that of Google Cloud, and that of the cluster (`infra.objects.kubernetes_provider`).
    """

    spec: FleetSpec
    """What a `Job` needs to know of the fleet."""
    cluster: pulumi.Resource | None
    """Resource of the cluster in the same program."""
    needs: Sequence[pulumi.Resource]
    """Resources that exist before a job and are deleted after it."""

    def __init__(self, name: str, args: FleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        needs = pulumi.ResourceOptions(depends_on=[args.cluster.resource] if args.cluster.resource else [])
        super().__init__("tpu-multislice:infra:Fleet", name, None, pulumi.ResourceOptions.merge(opts, needs))
        prefix, spec = child_prefix(name, "fleet"), args.spec
        inside = partial(child_options, self)
        in_cluster = partial(inside, deleted_with=args.cluster.resource)
        allowances = {team: args.allowances.get(team, Allowance()) for team in spec.teams}
        slices_args = TpuSlicesArgs(spec, args.cluster, {**MANAGED_BY, **args.labels})
        slices = TpuSlices(f"{prefix}slices", slices_args, inside())
        access = TrainerAccess(f"{prefix}access", self._access(args, allowances), inside())
        installed = args.cluster.shared.installed if args.cluster.shared else BOTH
        operators_args = OperatorsArgs(spec, slices.first_queued, installed)
        operators = Operators(f"{prefix}operators", operators_args, in_cluster())
        hooks = explain_stuck_deletes(f"{prefix}told-when-stuck", pulumi.Output.from_input(args.cluster.endpoint))
        queues_args = QueuesArgs(spec, args.cluster, allowances, args.monitoring, args.limited, hooks)
        queues = Queues(f"{prefix}queues", queues_args, in_cluster(operators))
        if args.monitoring:
            # Only the trainers' metrics wait for the teams' namespaces.
            namespaces = [team.namespace for team in spec.teams.values()]
            monitoring_args = MonitoringArgs(namespaces, queues, installed, spec.prefix)
            Monitoring(f"{prefix}monitoring", monitoring_args, in_cluster(operators))
        self.spec = replace(spec, restarts_slices=JOBSET.name in installed)
        self.cluster = args.cluster.resource
        self.needs = [slices, access, queues]
        self.register_outputs({"queues": {team: each.namespace for team, each in spec.teams.items()}})

    def _access(self, args: FleetArgs, allowances: Mapping[str, Allowance]) -> TrainerAccessArgs:
        on_hosts = {team for team, allowance in allowances.items() if allowance.host_network}
        folders = written_folders(args.spec.teams, {team: each.folders for team, each in allowances.items()}, on_hosts)
        datasets = args.spec.datasets.bucket if args.spec.datasets else None
        members = trainers(args.spec.cloud.project, self._number(args), folders, args.cluster.node_account)
        return TrainerAccessArgs(members, folders, args.spec.bucket, datasets)

    def _number(self, args: FleetArgs) -> pulumi.Input[str]:
        if args.cluster.project_number is not None:
            return args.cluster.project_number
        return project_number(args.spec.cloud.project, pulumi.InvokeOutputOptions(parent=self))

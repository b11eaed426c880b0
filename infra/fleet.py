"""The component `Fleet`: TPU slices in a cluster, and the queues through which teams use them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import pulumi

from infra.gke_cluster import ClusterPlace
from infra.identity import TrainerAccess, TrainerAccessArgs, project_number, trainers
from infra.monitoring import Monitoring, MonitoringArgs
from infra.objects import child_prefix, explain_stuck_deletes, part
from infra.operators import BOTH, JOBSET, Operators, OperatorsArgs
from infra.queues import Queues, QueuesArgs
from infra.slices import TpuSlices, TpuSlicesArgs
from infra.stack.access import Allowance
from infra.stack.names import MANAGED_BY
from infra.stack.settings import schema
from infra.stack.settings.errors import FieldError, refuse
from infra.stack.settings.read import check
from infra.stack.settings.stack import Draft, Settings, written_folders
from infra.stack.submission import FleetPlace


@dataclass(frozen=True, kw_only=True)
class FleetArgs:
    """Slices and teams of a cluster.

    Raises:
        SettingsError: the sections do not fit each other; lists all errors.
    """

    cloud: schema.Cloud
    """Project, region and zone of the cluster."""
    cluster: ClusterPlace
    """Cluster of the fleet: `Foundation.cluster`, or the outputs of another program."""
    slices: Mapping[str, schema.SliceGroup]
    """Slice groups by name."""
    teams: Mapping[str, schema.Team]
    """Teams by name."""
    bucket: str
    """Name of the checkpoint bucket, in the region of the slices."""
    scheduling: schema.Scheduling = schema.Scheduling()
    """Settings of all queues."""
    prices: schema.Prices = schema.Prices()
    """Contract prices. Default: list prices."""
    datasets: schema.Datasets | None = None
    """Bucket with training data, which trainers may read. Default: none."""
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
    def of(cls, settings: Settings, cluster: ClusterPlace) -> Self:
        """Return the fleet of a stack file."""
        on_hosts, folders = settings.host_network_teams, settings.job_folders
        return cls(
            cloud=settings.cloud,
            cluster=cluster,
            slices=settings.slices,
            teams=settings.teams,
            bucket=settings.checkpoint_bucket,
            scheduling=settings.scheduling,
            prices=settings.prices,
            datasets=settings.datasets,
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
        yield from check(
            Draft(
                cloud=self.cloud,
                slices=self.slices,
                written_slices={name: group.model_dump() for name, group in self.slices.items()},
                teams=self.teams,
                written_teams={name: team.model_dump() for name, team in self.teams.items()},
                datasets=self.datasets,
                network=schema.Network() if self.cluster.shared else self.cluster.ranges,
                scheduling=self.scheduling,
                prices=self.prices,
            )
        )
        for name, group in self.slices.items() if self.cluster.second_network is None else ():
            if group.second_network:
                expected, fix = "a cluster with a second network", "pass cluster.second_network, or remove it"
                yield FieldError(f"slices.{name}.second_network", expected, "none", fix)
        for name in sorted(self.allowances.keys() - self.teams.keys()):
            yield FieldError(f"allowances.{name}", "the name of a team", repr(name), "rename it, or add the team")


class Fleet(pulumi.ComponentResource):
    """TPU slices, JobSet and Kueue, the queues and access of teams, and monitoring.

    Its options need two providers: that of Google Cloud, and that of the cluster (`infra.objects.kubernetes_provider`).
    """

    place: FleetPlace
    """What a `Job` needs to know of the fleet."""

    def __init__(self, name: str, args: FleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        needs = pulumi.ResourceOptions(depends_on=[args.cluster.resource] if args.cluster.resource else [])
        super().__init__("tpu-multislice:infra:Fleet", name, None, pulumi.ResourceOptions.merge(opts, needs))
        prefix = child_prefix(name, "fleet")
        inside, in_cluster = partial(part, self), partial(part, self, deleted_with=args.cluster.resource)
        allowances = {team: args.allowances.get(team, Allowance()) for team in args.teams}
        slices = TpuSlices(f"{prefix}slices", _slices(args), inside())
        access = TrainerAccess(f"{prefix}access", self._access(args, allowances), inside())
        shared = args.cluster.shared
        installed = shared.installed if shared else BOTH
        own = shared.prefix if shared else ""
        operators_args = OperatorsArgs(args.slices.values(), args.scheduling, slices.first_queued, installed, own)
        operators = Operators(f"{prefix}operators", operators_args, in_cluster())
        hooks = explain_stuck_deletes(f"{prefix}told-when-stuck", pulumi.Output.from_input(args.cluster.endpoint))
        queues = Queues(f"{prefix}queues", _queues(args, allowances, hooks), in_cluster(operators))
        if args.monitoring:
            # Only the trainers' metrics wait for the teams' namespaces.
            namespaces = [team.namespace for team in args.teams.values()]
            monitoring_args = MonitoringArgs(namespaces, queues, installed, shared.prefix if shared else "")
            Monitoring(f"{prefix}monitoring", monitoring_args, in_cluster(operators))
        self.place = FleetPlace(
            cloud=args.cloud,
            slices=args.slices,
            teams=args.teams,
            bucket=args.bucket,
            scheduling=args.scheduling,
            prices=args.prices,
            datasets=args.datasets,
            prefix=shared.prefix if shared else "",
            restarts_slices=JOBSET.name in installed,
            cluster=args.cluster.resource,
            needs=[slices, access, queues],
        )
        self.register_outputs({"queues": {team: each.namespace for team, each in args.teams.items()}})

    def _access(self, args: FleetArgs, allowances: Mapping[str, Allowance]) -> TrainerAccessArgs:
        on_hosts = {team for team, allowance in allowances.items() if allowance.host_network}
        folders = written_folders(args.teams, {team: each.folders for team, each in allowances.items()}, on_hosts)
        members = trainers(args.cloud.project, self._number(args), folders, args.cluster.node_account)
        return TrainerAccessArgs(members, folders, args.bucket, args.datasets.bucket if args.datasets else None)

    def _number(self, args: FleetArgs) -> pulumi.Input[str]:
        """Return the number of the project."""
        if args.cluster.project_number is not None:
            return args.cluster.project_number
        return project_number(args.cloud.project, pulumi.InvokeOutputOptions(parent=self))


def _slices(args: FleetArgs) -> TpuSlicesArgs:
    return TpuSlicesArgs(
        cloud=args.cloud,
        cluster=args.cluster.name,
        endpoint=args.cluster.endpoint,
        node_account=args.cluster.node_account,
        groups=args.slices,
        labels={**MANAGED_BY, **args.labels},
        second_network=args.cluster.second_network,
        location=args.cluster.shared.location if args.cluster.shared else args.cloud.region,
        private_nodes=args.cluster.shared.private_nodes if args.cluster.shared else True,
    )


def _queues(args: FleetArgs, allowances: Mapping[str, Allowance], hooks: pulumi.ResourceHookBinding) -> QueuesArgs:
    return QueuesArgs(
        groups=args.slices,
        teams=args.teams,
        allowances=allowances,
        placement=args.scheduling.placement,
        prefix=args.cluster.shared.prefix if args.cluster.shared else "",
        counted=args.cluster.shared.counted if args.cluster.shared else (),
        network=args.cluster.ranges,
        monitored=args.monitoring,
        limited=args.limited,
        hooks=hooks,
    )

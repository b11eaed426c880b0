"""The component `Job`: a job in the queue of its team, with its Secret and its price."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pulumi
import pulumi_kubernetes as kubernetes

from infra.fleet import Fleet
from infra.objects import KubernetesObject
from infra.stack.command_lines import command_line
from infra.stack.job_objects import job_objects
from infra.stack.manifests import Object
from infra.stack.names import MAX_TIME_LABEL, PRIORITY_LABEL, QUEUE_LABEL, job_resource, jobs_folder
from infra.stack.settings import rules_jobs, rules_teams
from infra.stack.settings.errors import FieldError, refuse
from infra.stack.settings.jobs import AnyJob
from infra.stack.settings.stack import DraftJob, FleetSpec, Settings
from infra.stack.settings.values import HIDDEN, NAMESPACE, SECRETS
from infra.stack.submission import Submission, submission_to


@dataclass(frozen=True, kw_only=True)
class JobArgs:
    """A job, its fleet and its image.

    Raises:
        SettingsError: the job does not fit the fleet; lists all errors.
    """

    fleet: FleetSpec
    """Fleet that runs the job: `Fleet.spec`, or one written by hand for a fleet of another program."""
    job: AnyJob
    """Section of a stack file: `TrainingJob` or `ContainerJob`."""
    image: pulumi.Input[str] | None = None
    """Trainer's image by digest. Required by training jobs, and by container jobs with `check_slices`."""
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict[str, pulumi.Input[str]])
    """Environment variables of the pods that Pulumi keeps as secrets, by name. Default: none."""
    files: str | None = None
    """URL of the folder that contains the job's folder. Default: the folder `jobs` of its team in the fleet's
    bucket."""
    cluster: pulumi.Resource | None = None
    """`Fleet.cluster`: objects of a cluster that is deleted too are not deleted one by one. Default: none."""
    needs: Sequence[pulumi.Resource] = ()
    """`Fleet.needs`: resources that exist before the job and are deleted after it. Default: none."""
    replaced_with: Sequence[pulumi.Resource] = ()
    """Resources whose replacement replaces the JobSet, such as those that its slices depend on. Default: none."""
    only: bool = False
    """Whether it is the only job of a stack, which may be so old that its resources have no job's name."""

    def __post_init__(self) -> None:
        refuse(self._errors())

    @classmethod
    def of(
        cls,
        settings: Settings,
        name: str,
        fleet: Fleet,
        image: pulumi.Input[str] | None,
        markers: Mapping[str, pulumi.Resource],
    ) -> Self:
        """Return a job of a stack file. `markers` are the records that each group's slices depend on
        (`infra.guard`)."""
        job = settings.jobs[name]
        return cls(
            fleet=fleet.spec,
            job=job,
            image=image,
            cluster=fleet.cluster,
            needs=fleet.needs,
            secrets=_configured_secrets(settings.secrets_of(job)),
            files=f"gs://{settings.checkpoint_bucket}",
            replaced_with=[markers[group] for group in job.slices.groups],
            only=len(settings.jobs) == 1,
        )

    @property
    def variables(self) -> Sequence[str]:
        """Return the names of the secrets that its pods get."""
        return sorted(self.secrets if self.job.secrets is None else set(self.job.secrets))

    def _errors(self) -> Iterator[FieldError]:
        fleet, job = self.fleet, self.job
        draft = fleet.draft(jobs=(DraftJob("job", job.model_dump(), job),), secrets=tuple(self.secrets))
        shapes = {name: group.shape for name, group in fleet.slices.items()}
        yield from rules_teams.check(draft, shapes)
        yield from rules_jobs.check(draft, shapes)
        yield from rules_jobs.check_secrets(dict.fromkeys(self.secrets, HIDDEN))
        if self.image is None and (job.image is None or job.check_slices):
            yield FieldError("image", "the trainer's image by digest", "nothing", "pass image, or a container job")


class Job(pulumi.ComponentResource):
    """A JobSet with its own queue, so that the job can be paused, its price, and a Secret if it has secrets."""

    jobset: KubernetesObject

    def __init__(self, name: str, args: JobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        needs = pulumi.ResourceOptions(depends_on=list(args.needs))
        super().__init__("tpu-multislice:infra:Job", name, None, pulumi.ResourceOptions.merge(opts, needs))
        namespace = args.fleet.teams[args.job.team].namespace
        files = args.files or f"gs://{args.fleet.bucket}/{jobs_folder(namespace)}"
        submitted = submission_to(args.fleet, args.job, args.image, files=files, secrets=args.variables)
        objects = job_objects(submitted, args.secrets)
        around = [
            self._queue(name, args, objects["LocalQueue"]),
            *self._price(name, args, objects.get("ConfigMap")),
            *self._secret(name, args, objects.get("Secret")),
        ]
        self.jobset = self._jobset(name, args, submitted, objects["JobSet"], around)
        self.register_outputs({"name": args.job.name, "namespace": namespace})

    def _queue(self, name: str, args: JobArgs, rendered: Object) -> pulumi.Resource:
        among_queues = pulumi.Alias(parent=pulumi.create_urn("queues", "tpu-multislice:infra:Queues"))
        return KubernetesObject(f"queue-{args.job.team}.{name}", rendered, self._with_cluster(args, [among_queues]))

    def _price(self, name: str, args: JobArgs, rendered: Object | None) -> Iterator[pulumi.Resource]:
        """Declare the known price of the job, which each start records in the job's ledger. A changed price is updated
        in place and leaves the job unchanged."""
        if rendered:
            yield kubernetes.core.v1.ConfigMap(
                f"price-{name}",
                metadata=rendered["metadata"],
                data=rendered["data"],
                opts=self._with_cluster(args, _former_names("price", args)),
            )

    def _secret(self, name: str, args: JobArgs, rendered: Object | None) -> Iterator[pulumi.Resource]:
        """Declare the Secret, the only way from Pulumi's configuration to the cluster. A changed value is updated in
        place, because running pods refer to the Secret by its name."""
        if rendered:
            metadata, values = rendered["metadata"], rendered["stringData"]
            announced = _announce_rotation(name, args.job.name, metadata["namespace"])
            own = pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_update=[announced]))
            yield kubernetes.core.v1.Secret(
                f"secrets-{name}",
                metadata=metadata,
                string_data={each: pulumi.Output.secret(value) for each, value in values.items()},
                opts=pulumi.ResourceOptions.merge(self._with_cluster(args, _former_names("secrets", args)), own),
            )

    def _jobset(
        self, name: str, args: JobArgs, submitted: Submission, rendered: Object, around: Sequence[pulumi.Resource]
    ) -> KubernetesObject:
        """Declare the JobSet.

        Changes that JobSet or Kueue would refuse while it runs replace it, and so does everything in `replaced_with`.
        Two JobSets of the same name cannot coexist, so the old one is deleted first.
        """
        fixed = [QUEUE_LABEL, MAX_TIME_LABEL] + [PRIORITY_LABEL] * submitted.rewrites_node_selector
        options = pulumi.ResourceOptions(
            parent=self,
            depends_on=list(around),
            replace_on_changes=["spec", *(f'metadata.labels["{label}"]' for label in fixed)],
            replace_with=list(args.replaced_with),
            delete_before_replace=True,
            aliases=_former_names("training", args),
        )
        return KubernetesObject(job_resource(name), rendered, options)

    def _with_cluster(self, args: JobArgs, aliases: Sequence[pulumi.Alias]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, deleted_with=args.cluster, aliases=list(aliases))


def _former_names(name: str, args: JobArgs) -> list[pulumi.Alias]:
    """Return the places at which older stacks have a resource: without a parent, and in a stack that could have only
    one job under `name`."""
    at_top = pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)
    return [at_top, pulumi.Alias(name=name, parent=pulumi.ROOT_STACK_RESOURCE)] if args.only else [at_top]


def _configured_secrets(names: Sequence[str]) -> Mapping[str, pulumi.Input[str]]:
    """Return the values of the section `secrets` in Pulumi's configuration."""
    if not names:
        return {}
    values = pulumi.Config(NAMESPACE).require_secret_object(SECRETS)
    return {name: values[name] for name in names}


def _announce_rotation(name: str, job: str, namespace: str) -> pulumi.ResourceHook:
    """Return a hook that logs, also in previews, which secrets change and when the job will see them."""

    async def announce(change: pulumi.ResourceHookArgs) -> None:
        old, new = [await _data(inputs or {}) for inputs in (change.old_inputs, change.new_inputs)]
        changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
        if changed:
            up = command_line("up", pulumi.get_stack(), "--refresh")
            pulumi.log.warn(
                f"secrets of job {job} change: {', '.join(changed)}. Its running pods keep the old values until the"
                " job's next start, whatever causes it. To restart it now from its last checkpoint:"
                f" kubectl delete jobset {job} -n {namespace}, then {up}"
            )

    name = f"warn-about-changed-secrets-of-{name}"
    return pulumi.ResourceHook(name, announce, pulumi.ResourceHookOptions(on_dry_run=True))


async def _data(inputs: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the Secret's data, which the SDK passes to a hook as an output."""
    return await pulumi.Output.from_input(inputs.get("data", {})).future() or {}

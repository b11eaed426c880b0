"""`multislice render` without a cluster: a job of a stack file, or a job file for a cluster that options describe."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from cli import stack_file
from cli.answer import Halt
from cli.submit import error_lines, read_file, write_manifests
from infra.stack.command_lines import command_line
from infra.stack.cost import usd_per_job_hour
from infra.stack.job_objects import job_objects, team_jobset
from infra.stack.settings.errors import FieldError, SettingsError, count_errors, nearest
from infra.stack.settings.stack import Settings, join_names
from infra.stack.settings.submitted import DescribedCluster, read_described
from infra.stack.settings.values import NAMESPACE, SECRETS
from infra.stack.settings.yaml_file import shown
from infra.stack.submission import submission
from workloads.terminal import inert

_DIGEST = "<DIGEST>"
"""Placeholder for the digest of an image that `up` has not built yet."""


def render_declared(stack: str, name: str) -> int:
    """Print the objects that `up` creates for a job of a stack file, or for the runs of a sweep, as YAML.

    A placeholder stands for each value that the file does not have, and a line on stderr says where it is from. Return
    the exit status. Raise Halt if the file has errors or no such job.
    """
    path = stack_file.find(stack)
    settings = stack_file.read(path)
    jobs = [job for job in settings.jobs.values() if name in (job.name, job.sweep_name)]
    if not jobs:
        known = {job.sweep_name or job.name for job in settings.jobs.values()}
        meant = f"did you mean {found}? " if (found := nearest(name, known)) else ""
        raise Halt(f"{meant}expected one of the jobs in {shown(path)} ({join_names(known)}), got {name!r}")
    secrets = {each: f"<{each}>" for job in jobs for each in settings.secrets_of(job)}
    rendered = [job_objects(submission(settings, job, _image(settings)), secrets) for job in jobs]
    text = write_manifests([manifest for objects in rendered for manifest in objects.values()])
    origins = {_DIGEST: f"digest of the trainer's image, which `{command_line('up', stack)}` builds"}
    for each, placeholder in secrets.items():
        value = f"pulumi config get --path '{NAMESPACE}:{SECRETS}.{each}' -s {stack}"
        origins[placeholder] = f"value of a secret in Pulumi's configuration, which `{value}` prints"
    for placeholder, origin in origins.items():
        if placeholder in text:
            sys.stderr.write(inert(f"{placeholder}: {origin}\n"))
    return 0


def _image(settings: Settings) -> str | None:
    """Return the trainer's image as `infra.storage.image_reference` does."""
    if settings.image is None or settings.image.reference:
        return settings.image and settings.image.reference
    cloud = settings.cloud
    return f"{cloud.region}-docker.pkg.dev/{cloud.project}/{settings.cluster.name}/trainer@sha256:{_DIGEST}"


def render_described(path: Path | None, options: Mapping[str, object], words: Sequence[str]) -> int:
    """Print the JobSet of a job file, or of the runs of its sweep, as YAML.

    `options` describe the cluster, by the names of `DescribedCluster`. None: not given. Others among them, and the
    `words` of the command line, have no meaning here. Return the exit status. Raise Halt with all errors.
    """
    fields = DescribedCluster.model_fields
    given = {name: _value(name, options[name]) for name in fields if options[name] is not None}
    others = [*words, *(f"--{name}" for name, value in options.items() if value and name not in fields)]
    lines = [f"expected only options of the cluster with --job-file, got {' '.join(others)}"] if others else []
    if path is None:
        lines.append("--job-file: expected the file of a job, got nothing; pass it, or --stack or --kubeconfig")
    request, unreadable, found, errors = None, list[str](), None, tuple[FieldError, ...]()
    try:
        request = read_file(path) if path else None
    except Halt as error:
        unreadable.append(str(error))
    try:
        found = read_described(*((request.name, request.section) if request else ("job", {})), given)
    except SettingsError as error:
        errors = error.errors
    of_cluster = [each for each in errors if each.path.partition(".")[0] in fields]
    lines += [str(_of_option(each)) for each in of_cluster]
    if request is None:
        raise Halt("\n".join([*lines, *unreadable]))
    lines += error_lines([each for each in errors if each not in of_cluster], request)
    if lines or found is None:
        raise Halt("\n".join([*lines, f"{count_errors(len(lines))}. Nothing was printed"]))
    cluster, settings = found
    fleet, image, account = cluster.fleet(settings), cluster.image, cluster.service_account
    jobs = settings.jobs.values()
    prices = [usd_per_job_hour(fleet, job) if cluster.usd_per_chip_hour else None for job in jobs]
    write_manifests([team_jobset(fleet, job, image, usd, account) for job, usd in zip(jobs, prices, strict=True)])
    return 0


def _value(name: str, text: object) -> object:
    try:
        return yaml.safe_load(text) if name == "capacity" and isinstance(text, str) else text
    except yaml.YAMLError:
        return text


def _of_option(error: FieldError) -> FieldError:
    name, dot, key = error.path.partition(".")
    fix = re.sub(r"^(add|change) .* (in|to) the stack file$", r"\1 it", error.fix)
    return replace(error, path=f"--{name.replace('_', '-')}{dot}{key}", fix=fix)

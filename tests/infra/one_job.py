"""The job of a stack that has one."""

from typing import Any

import pulumi

from infra.stack.settings.jobs import AnyJob, TrainingJob
from infra.stack.settings.read import parse
from infra.stack.settings.schema import SliceGroup, Team
from infra.stack.settings.stack import Settings
from infra.stack.submission import Submission, job_spec, submission
from tests.infra.recording import Values
from workloads.spec import JobSpec

IMAGE = "trainer@sha256:0"


def only_job(settings: Settings) -> AnyJob:
    (job,) = settings.jobs.values()
    return job


def only_training(settings: Settings) -> TrainingJob:
    (job,) = settings.training_jobs.values()
    return job


def only_spec(settings: Settings) -> JobSpec:
    return job_spec(settings, only_training(settings))


def only_submission(settings: Settings, image: pulumi.Input[str] = IMAGE) -> Submission:
    return submission(settings, only_job(settings), image)


def submitted(values: Values) -> Submission:
    return only_submission(parse(values))


def only_team(settings: Settings) -> Team:
    return settings.team_of(only_job(settings))


def only_group(settings: Settings) -> SliceGroup:
    return settings.group_of(only_job(settings))


def template_of(jobset: Any) -> Any:
    """The template of the pods of a job's slices."""
    (slices,) = (part for part in jobset["spec"]["replicatedJobs"] if part["name"] == "slice")
    return slices["template"]["spec"]["template"]


def unnamed(values: Values) -> Values:
    """Take the job out of a stack file, for `jobs` by name."""
    job = values.pop("job")
    del job["name"]
    return job

"""What must hold of a job, so that it goes on after a failure and ends when it has ended."""

from collections.abc import Iterator

from policy.jobs import SliceJob, of_jobs
from policy.resources import JOB_SET, at
from policy.rule import About, Declared, Group, Level, ResourceRule, Rule, Severity

_JOB_SET = "https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/"
_FAILURE_POLICY = "https://jobset.sigs.k8s.io/docs/concepts/"


def _restarted(job_set: Declared) -> Iterator[str]:
    if not at(job_set.properties, "spec", "failurePolicy", "maxRestarts"):
        yield "expected failurePolicy.maxRestarts of 1 or more, got none"
    strategy = at(job_set.properties, "spec", "failurePolicy", "restartStrategy")
    if strategy != "BlockingRecreate":
        yield f"expected failurePolicy.restartStrategy BlockingRecreate, got {strategy!r}"


def _restarted_together(job: SliceJob) -> Iterator[str]:
    limit, policy = at(job.job, "backoffLimit"), at(job.pod, "restartPolicy")
    if limit != 0:
        yield f"expected backoffLimit 0, got {limit}"
    if policy != "Never":
        yield f"expected restartPolicy Never, got {policy!r}"
    if (mode := at(job.job, "completionMode")) not in (None, "Indexed"):
        yield f"expected completionMode Indexed, got {mode!r}"


def _kept(job_set: Declared) -> Iterator[str]:
    seconds = at(job_set.properties, "spec", "ttlSecondsAfterFinished")
    if seconds is not None:
        yield f"expected no spec.ttlSecondsAfterFinished, got {int(seconds)}"


def _deleted_first(job_set: Declared) -> Iterator[str]:
    if not job_set.delete_before_replace:
        yield "expected the option deleteBeforeReplace, got none"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "job-restarts",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "A job restarts as a whole after a failure",
            "Without restarts the first bad host ends the job; without BlockingRecreate a new attempt meets the"
            " coordinator of the one before it.",
            "Set job.max_restarts to 1 or more.",
            _FAILURE_POLICY,
        ),
        (JOB_SET,),
        _restarted,
    ),
    ResourceRule(
        About(
            "job-restarts-together",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "No pod of a job restarts on its own",
            "A single new process cannot join a running JAX program: the others hang in their next collective until"
            " they time out.",
            "Set backoffLimit 0 and restartPolicy Never; JobSet restarts all pods.",
            _FAILURE_POLICY,
        ),
        (JOB_SET,),
        of_jobs(_restarted_together),
    ),
    ResourceRule(
        About(
            "job-kept",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "A job that has ended stays until the program removes it",
            "A JobSet that deletes itself is missing at the next `up`, which declares it anew: it trains again.",
            "Remove ttlSecondsAfterFinished from the JobSet.",
            _JOB_SET,
        ),
        (JOB_SET,),
        _kept,
    ),
    ResourceRule(
        About(
            "job-deleted-first",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "A job that is replaced is deleted before the new one is made",
            "Two JobSets cannot have one name, and two runs would write one folder of checkpoints.",
            "Set delete_before_replace=True on the JobSet.",
            "https://www.pulumi.com/docs/iac/concepts/resources/options/deletebeforereplace/",
        ),
        (JOB_SET,),
        _deleted_first,
    ),
)

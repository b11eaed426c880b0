"""`multislice retry`: a failed job submitted once more.

A failed JobSet never runs again, so it is deleted and the same one is made, as whoever declared it: `up` finds its own
object. Before the old one goes, the API server judges the new one under a name of the same length.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError
from rich.console import Console

from cli.control.cancel import end
from cli.control.checkpoint import Checkpoint, last_checkpoint
from cli.control.declared import Declarer, declarer, submission
from cli.control.job import REFUSED, Job, State, asking, find, wait
from cli.control.outcome import Outcome, tell
from cli.deployed import Deployed
from cli.halt import INTERRUPTED, Halt
from cli.observed.kind import variables
from infra.kubernetes import APPLY_PATCH, UNREACHABLE, Json
from infra.names import JOBSETS
from workloads.spec import JOB_SPEC_VARIABLE

_SUBMIT_SECONDS = 60.0
"""Patience with webhooks that are away, once the old job is gone."""


def retry(stack: Deployed, name: str | None, console: Console, *, as_json: bool) -> int:
    """Submit a failed job once more; the exit status.

    Raises:
        Halt: there is no such job, it has not failed, or the cluster refuses.
    """
    failed = find(stack, name)
    place = failed.place
    if failed.state is not State.FAILED:
        raise Halt(f"expected a job that has failed, but {place.name} is {failed.state}; nothing was changed", REFUSED)
    by = declarer(failed.jobset)
    if by is None:
        raise Halt(
            f"job {place.name} has no managed fields that say what was submitted, so it cannot be submitted once more;"
            " nothing was changed. If it is the stack's: multislice cancel, then `pulumi up --refresh`",
            REFUSED,
        )
    again = submission(failed.jobset, by, failed.workload)
    with asking(f"take job {place.name} once more (nothing was changed)"):
        _rehearse(failed, again, by)
    _replace(stack, failed, again, by)
    state = find(stack, place.name).state
    checkpoint = last_checkpoint(stack.job_folder(place))
    notes = (_goes_on(again, checkpoint), "restarts count anew, and so do its max_hours")
    outcome = Outcome(
        job=place.name, namespace=place.namespace, done="retried", state=state, checkpoint=checkpoint, notes=notes
    )
    tell(outcome, console, as_json=as_json)
    return 0


def _rehearse(failed: Job, again: Json, by: Declarer) -> None:
    """What is wrong with the job, or lacks the right to make it, is refused here, while the old one is there."""
    name = failed.place.name
    other = name[:-1] + ("x" if name[-1] != "x" else "y")
    _make(failed, again | {"metadata": again["metadata"] | {"name": other}}, by, {"dryRun": "All"})


def _replace(stack: Deployed, failed: Job, again: Json, by: Declarer) -> None:
    """Between the end of the old job and the new one, Ctrl-C would leave neither: it is told, with the way back."""
    try:
        end(failed)
        _submit(failed, again, by)
    except KeyboardInterrupt:
        raise Halt(
            f"stopped while job {failed.place.name} was replaced, so it may be gone; see: multislice list"
            f" {stack.options}\nIf it is, `pulumi up --refresh --stack {stack.stack}` makes it",
            INTERRUPTED,
        ) from None


def _submit(failed: Job, again: Json, by: Declarer) -> None:
    refusals: list[Exception] = []

    def taken() -> bool:
        try:
            _make(failed, again, by, {})
        except UNREACHABLE as error:
            refusals.append(error)
            return False
        return True

    if not wait(taken, _SUBMIT_SECONDS):
        raise Halt(
            f"job {failed.place.name} was deleted, but the cluster does not take it again: {refusals[-1]}\n"
            "Once it does, `pulumi up --refresh` makes it"
        )


def _make(failed: Job, manifest: Json, by: Declarer, query: Mapping[str, str]) -> None:
    """As whoever declared it, in the same way."""
    collection, named = JOBSETS.format(failed.place.namespace), {"fieldManager": by.manager, **query}
    if by.applies:
        failed.api.request("PATCH", f"{collection}/{manifest['metadata']['name']}", manifest, named, APPLY_PATCH)
    else:
        failed.api.request("POST", collection, manifest, named)


def _goes_on(again: Json, checkpoint: Checkpoint) -> str:
    if _existing_run(again) == "anew":
        return "its existing_run is anew: it begins a new run, and the failed one stays as it is"
    return f"it goes on from step {checkpoint.step}" if checkpoint.step else "it begins at the first step"


def _existing_run(again: Json) -> str | None:
    """Of the trainer's specification; None: it runs another program."""
    told = next((each.get("value", "") for each in variables(again) if each["name"] == JOB_SPEC_VARIABLE), "")
    try:
        # Another version may have written it, so no more is asked of it than this.
        return _Spec.model_validate_json(told).storage.existing_run
    except ValidationError:
        return None


class _Storage(BaseModel):
    existing_run: str


class _Spec(BaseModel):
    storage: _Storage

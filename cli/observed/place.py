"""Which job is meant by a name: one of the stack's, or one that somebody submitted by hand."""

from collections.abc import Sequence

from cli.deployed import Deployed, JobPlace
from cli.halt import Halt
from cli.observed.objects import Object
from infra.kubernetes import ApiError
from infra.names import JOBSETS, QUEUE_LABEL, team_of


def place_of(deployed: Deployed, name: str | None) -> JobPlace:
    """The job that `NAME` or `NAMESPACE/NAME` means, of the stack or submitted by hand; None: the stack's only one.

    Raises:
        Halt: there is no such job, several namespaces have one of that name, or it takes a name to know.
        urllib3.exceptions.HTTPError, OSError: the cluster does not answer.
    """
    if name is None:
        return deployed.job(None)
    namespace, _, short = name.rpartition("/")
    namespaces = [each for each in deployed.namespaces if namespace in ("", each)]
    own = [job for job in deployed.jobs if job.name == short]
    others = sorted({*namespaces} - {job.namespace for job in own})
    submitted = [found for each in others if (found := _submitted(deployed, each, short))]
    return meant(name, [*own, *submitted]) or deployed.job(name)


def meant(name: str, places: Sequence[JobPlace]) -> JobPlace | None:
    """Which of these jobs `NAME` or `NAMESPACE/NAME` means.

    Raises:
        Halt: several namespaces have a job of that name.
    """
    found = [place for place in places if name in (place.name, place.full_name)]
    if len(found) > 1:
        names = " or ".join(place.full_name for place in found)
        raise Halt(
            f"expected the name of one job, got {name!r}, which several namespaces have; name one of them: {names}"
        )
    return next(iter(found), None)


def _submitted(deployed: Deployed, namespace: str, name: str) -> JobPlace | None:
    try:
        found = deployed.api.find(f"{JOBSETS.format(namespace)}/{name}")
    except ApiError:
        return None  # A namespace that one may not look into has no job of one's own.
    return place_in(found, namespace) if found else None


def place_in(jobset: Object, namespace: str) -> JobPlace:
    """Return where a JobSet is, and the team whose queue it names; empty if it names none."""
    metadata = jobset["metadata"]
    return JobPlace(metadata["name"], namespace, team_of(metadata.get("labels", {}).get(QUEUE_LABEL, "")))

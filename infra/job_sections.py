"""Reading the jobs of a stack file: the section `jobs`, or `job`, its short form for one training job.

Owns which of the two is there, the kinds, and how a job comes by its name.
"""

from collections.abc import Iterator, Mapping

from infra.faults import Fault
from infra.jobs import AnyJob, ContainerJob, TrainingJob
from infra.rules.draft import DraftJob, Written
from infra.sections import Sections, entries, read

SHORT_FORM = "job"
SECTION = "jobs"

_KINDS: Mapping[str, type[AnyJob]] = {"training": TrainingJob, "container": ContainerJob}
_USUAL_KIND = "training"


def read_jobs(sections: Sections) -> tuple[DraftJob, ...]:
    """The jobs in the order of their names, and in `sections` their faults."""
    raw = sections.raw
    if SHORT_FORM in raw and SECTION in raw:
        sections.faults.append(
            Fault(SHORT_FORM, "either jobs or, for one training job, job", "both", "move it into jobs, below its name")
        )
    if SECTION not in raw:
        return tuple(_short_form(sections))
    written = entries(raw[SECTION])
    if not written:
        fault = Fault(SECTION, "at least one entry by name", repr(raw[SECTION]), "add one to jobs")
        sections.faults.append(fault)
    return tuple(
        _named(sections, name, value) for name, value in sorted(written.items(), key=lambda item: str(item[0]))
    )


def _short_form(sections: Sections) -> Iterator[DraftJob]:
    if SHORT_FORM not in sections.raw:
        fault = Fault(SECTION, "at least one job", "nothing", "add jobs to the stack file, or job for one alone")
        sections.faults.append(fault)
        return
    written = entries(sections.raw[SHORT_FORM])
    if written.get("kind", _USUAL_KIND) != _USUAL_KIND:
        got = repr(written["kind"])
        fix = "move it into jobs, below its name"
        sections.faults.append(Fault(f"{SHORT_FORM}.kind", "a training job, for job stands for one", got, fix))
        return
    job, faults = read(sections.raw[SHORT_FORM], SHORT_FORM, TrainingJob)
    sections.faults += faults
    yield DraftJob(SHORT_FORM, written, job)


def _named(sections: Sections, name: str, value: object) -> DraftJob:
    path, written = f"{SECTION}.{name}", entries(value)
    if "name" in written:
        expected = f"no name, since {name} is the job's name"
        sections.faults.append(Fault(f"{path}.name", expected, repr(written["name"]), "remove it, or rename the key"))
    kind = written.get("kind", _USUAL_KIND)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        expected = f"one of the kinds {', '.join(_KINDS)}"
        sections.faults.append(Fault(f"{path}.kind", expected, repr(kind), f"change {path}.kind in the stack file"))
        return DraftJob(path, written, None)
    job, faults = read(_with_name(value, name), path, model)
    sections.faults += [_of_key(fault, path) for fault in faults]
    return DraftJob(path, written, job)


def _with_name(value: object, name: str) -> object:
    return {**entries(value), "name": name} if isinstance(value, Mapping) else value


def _of_key(fault: Fault, path: str) -> Fault:
    """A fault of the name, which is a key."""
    return Fault(path, fault.expected, fault.got, "rename it") if fault.path == f"{path}.name" else fault


def kind_of(written: Written) -> object:
    """What a job's section says of its kind, right or wrong."""
    return written.get("kind", _USUAL_KIND)

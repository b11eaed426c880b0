"""Reading the jobs of a stack file: the section `jobs`, or `job`, its short form for one training job.

Owns which of the two is there, the kinds, and how a job comes by its name.
"""

from collections.abc import Iterator, Mapping

from infra import sweeps
from infra.faults import Fault, nearest, shown
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
    if not isinstance(raw[SECTION], Mapping):
        fix = "write jobs by name, or {} for a stack without any"
        sections.faults.append(Fault(SECTION, "a mapping by name", shown(raw[SECTION]), fix))
    found = [
        job
        for name, value in sorted(entries(raw[SECTION]).items(), key=lambda item: str(item[0]))
        for job in _sweep_or_job(sections, name, value)
    ]
    sections.faults += _same_names(found)
    return tuple(found)


def _short_form(sections: Sections) -> Iterator[DraftJob]:
    if SHORT_FORM not in sections.raw:
        # Asked for, since a section that was lost by mistake would delete the jobs.
        fix = "add jobs to the stack file, or job for one alone, or jobs: {} for a stack without any"
        sections.faults.append(Fault(SECTION, "the stack's jobs", "nothing", fix))
        return
    written = entries(sections.raw[SHORT_FORM])
    if written.get("kind", _USUAL_KIND) != _USUAL_KIND:
        got = repr(written["kind"])
        fix = "move it into jobs, below its name"
        sections.faults.append(Fault(f"{SHORT_FORM}.kind", "a training job, for job stands for one", got, fix))
        return
    if sweeps.KEY in written:
        expected, fix = "one job, for its name is that of its files", "move it into jobs, below its name"
        sections.faults.append(Fault(f"{SHORT_FORM}.{sweeps.KEY}", expected, "a sweep", fix))
    job, faults = read(sections.raw[SHORT_FORM], SHORT_FORM, TrainingJob)
    sections.faults += faults
    yield DraftJob(SHORT_FORM, written, job)


def _sweep_or_job(sections: Sections, name: str, value: object) -> Iterator[DraftJob]:
    """The runs of a sweep, of which the ones that are wrong in the same way tell it once; or the job."""
    path, written = f"{SECTION}.{name}", entries(value)
    if sweeps.KEY not in written:
        yield _named(sections, name, path, value)
        return
    if wrong := list(sweeps.faults(path, written)):
        sections.faults += wrong
        yield _named(sections, name, path, {key: item for key, item in written.items() if key != sweeps.KEY})
        return
    for run, section in sweeps.runs(name, written):
        yield _named(sections, run, path, section)


def _same_names(jobs: list[DraftJob]) -> Iterator[Fault]:
    """A run of a sweep that has the name of another job."""
    paths: dict[str, str] = {}
    for entry in jobs:
        if entry.job and paths.setdefault(entry.job.name, entry.path) != entry.path:
            expected = f"a name of its own for each job and each run of {paths[entry.job.name]}"
            yield Fault(entry.path, expected, entry.job.name, "rename one of them")


def _named(sections: Sections, name: str, path: str, value: object) -> DraftJob:
    written = entries(value)
    if "name" in written:
        expected = f"no name, since {name} is the job's name"
        sections.faults.append(Fault(f"{path}.name", expected, repr(written["name"]), "remove it, or rename the key"))
    kind = written.get("kind", _USUAL_KIND)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        expected = f"one of the kinds {', '.join(_KINDS)}"
        fix = f"change {path}.kind in the stack file"
        sections.faults.append(Fault(f"{path}.kind", expected, repr(kind), fix, nearest(kind, _KINDS)))
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

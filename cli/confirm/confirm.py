"""Collects the evidence of a stack, answers every item, and writes the file."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.console import Console

from cli import engines, stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from cli.confirm.items import ITEMS, Item
from cli.confirm.questions import Evidence
from cli.confirm.record import Answer, Confirmation, Result, Slices
from cli.deployed import Deployed
from cli.doctor.doctor import examine, scope_of
from cli.drift import find_drift
from cli.observed.files import read_runs
from infra.kubernetes import UNREACHABLE
from infra.names import NO_JOB_RUNS
from infra.review.table import State, Table
from infra.submission import job_specs
from workloads.preflight_result import cache_folder, cached_all
from workloads.report.command import faults_of_storage
from workloads.terminal import Terminal

OUTPUT = Path("confirmation.json")
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_STATES: dict[Result, State] = {"confirmed": "good", "differs": "bad", "not asked": "notable"}


def confirm(deployed: Deployed, output: Path, form: Form, console: Console) -> int:
    """Answer every item about the stack and write the file. Return 2 if an assumption does not hold, else 0.

    Raise Halt if the stack cannot be read or the file cannot be written.
    """
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise Halt(f"--output must name a file in an existing folder, got {output}; nothing was asked")
    with Terminal(stderr=True).status(f"asking {len(ITEMS)} questions about {deployed.stack}"):
        evidence = collect(deployed)
    found = confirmation(evidence, sandbox=deployed.sandbox is not None)
    try:
        output.write_text(found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise Halt(f"{output}: expected to write the file there, got {error}; choose --output FILE") from None
    write(found.model_dump_json(indent=1), [_table(found, output)], form, console)
    return NEGATIVE if any(answer.result == "differs" for answer in found.answers) else 0


def collect(deployed: Deployed) -> Evidence:
    """Return what other commands find out about the stack."""
    path = stack_file.find(deployed.stack)
    settings = stack_file.read(path)
    with engines.open_engine(path, deployed.sandbox) as engine:
        drift = find_drift(deployed.stack, engine)
    names = {job.name for job in settings.training_jobs.values()}
    places = [job for job in deployed.jobs if job.name in names]
    try:
        histories = {job.name: tuple(read_runs(deployed.job_folder(job))) for job in places}
    except (*faults_of_storage(), ImportError) as error:
        raise Halt(f"the records of the jobs cannot be read: {error}; see `multislice doctor`") from None
    return Evidence(
        settings=settings,
        checks=tuple(examine(scope_of(deployed.stack, deployed.sandbox))),
        drift=drift,
        policies=_policies(deployed),
        histories=histories,
        preflights=cached_all(job_specs(settings), cache_folder(os.environ)),
    )


def _policies(deployed: Deployed) -> int | None:
    try:
        found = deployed.api.request("GET", _POLICIES)["items"]
    except UNREACHABLE:
        return None
    # In a cluster that others use too, the names of the stack's objects begin with a prefix.
    return sum(each["metadata"]["name"].endswith(NO_JOB_RUNS) for each in found)


def confirmation(evidence: Evidence, *, sandbox: bool) -> Confirmation:
    """Return the answers to all items, as far as this place can give them."""
    groups = evidence.settings.slices.values()
    return Confirmation(
        date=datetime.now(UTC).date(),
        where="sandbox" if sandbox else "google",
        version=metadata.version("tpu-multislice"),
        slices=tuple(
            Slices(generation=each.generation, topology=each.topology, capacity=each.capacity.kind, count=each.count)
            for each in groups
        ),
        answers=tuple(_answer(item, evidence, sandbox=sandbox) for item in ITEMS),
    )


def _answer(item: Item, evidence: Evidence, *, sandbox: bool) -> Answer:
    if item.question is None:
        return Answer(item=item.name, result="not asked", why="a person has to look")
    if sandbox and item.real:
        return Answer(item=item.name, result="not asked", why="needs chips" if item.real == "chips" else _NO_CLOUD)
    found = item.question(evidence)
    if found is None:
        return Answer(item=item.name, result="not asked", why="no evidence")
    return Answer(item=item.name, result="confirmed" if found.holds else "differs", found=dict(found.values))


_NO_CLOUD = "needs Google Cloud"


def _table(found: Confirmation, output: Path) -> Table:
    counts = {result: sum(answer.result == result for answer in found.answers) for result in _STATES}
    said = ", ".join(f"{count} {result}" for result, count in counts.items())
    in_sandbox = found.where == "sandbox"
    return Table(
        title="Confirmations",
        verdict=f"{said}{'; in the sandbox, which confirms nothing' if in_sandbox else ''}",
        state="bad" if counts["differs"] else "notable" if in_sandbox else "good",
        columns=("item", "result", "found, or why it was not asked"),
        rows=list(_rows(found)),
        notes=[
            f"- written to {output}; it contains no names of projects, stacks, jobs or people",
            *([] if in_sandbox else ["- to share it, put it into confirmed/ and open a pull request"]),
        ],
    )


def _rows(found: Confirmation) -> Iterator[tuple[str, ...]]:
    for item, answer in zip(ITEMS, found.answers, strict=True):
        values = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                           for name, value in answer.found.items())  # fmt: skip
        why = f"{answer.why}: {item.how}" if answer.why in ("no evidence", "a person has to look") else answer.why
        yield f"{item.stage + 1} {item.title}", answer.result, values or why

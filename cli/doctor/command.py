"""`multislice doctor`: all groups, one after the other."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cli import stack_file
from cli.answer import form, write
from cli.deployed import deployed
from cli.doctor import apis, clocks, credentials, dns, nodes, queues, quota, versions
from cli.doctor.check import Check, Findings, Scope, Verdict, fault, not_asked
from cli.doctor.google import Google, NotAsked, google
from cli.halt import Halt
from infra.kubernetes import UNREACHABLE, ApiError
from infra.review.table import Table
from workloads.spec import Spec

if TYPE_CHECKING:
    from infra.settings.stack import Settings

ILL = 2
"""Exit status when a check fails."""

GROUPS: Mapping[str, tuple[Callable[[Scope], Findings], ...]] = {
    "credentials": (
        credentials.stack,
        credentials.rights,
        credentials.bucket,
        credentials.gcloud,
        credentials.application_default,
        credentials.billing,
    ),
    "APIs": (apis.kinds, apis.services),
    "quota": (quota.queues, quota.google, quota.zones),
    "versions": (versions.nodes, versions.operators, versions.programs),
    "clocks": (clocks.here, clocks.nodes),
    "DNS": (dns.endpoint, dns.servers),
    "queues": (queues.active, queues.controllers, queues.submission, queues.waiting),
    "nodes": (nodes.slices, nodes.pools),
}


class Report(Spec):
    """All checks."""

    stack: str
    checks: tuple[Check, ...]


def doctor(stack: str, sandbox: Path | None, console: Console, *, as_json: bool) -> int:
    """Examine a stack; the exit status. `sandbox` is the folder of the one that it stands in; None: Google Cloud."""
    checks = tuple(examine(_scope(stack, sandbox)))
    write(
        Report(stack=stack, checks=checks).model_dump_json(indent=1),
        [_table(stack, checks)],
        form(as_json=as_json),
        console,
    )
    return ILL if any(check.verdict is Verdict.FAULT for check in checks) else 0


def examine(scope: Scope) -> Iterator[Check]:
    """The checks of all groups; one that nobody can answer leaves the others as they are."""
    for group, questions in GROUPS.items():
        for question in questions:
            subject = question.__name__
            try:
                checks = _answers(subject, question, scope)
            except UNREACHABLE as error:
                said = f"the cluster does not answer: {error}"
                checks = [fault(subject, said, "look at the network, and at DNS below; then again")]
                scope = replace(scope, silent=True)
            yield from (check.model_copy(update={"group": group}) for check in checks)


def _answers(subject: str, question: Callable[[Scope], Findings], scope: Scope) -> list[Check]:
    """Those that were given until one could not be.

    Raises:
        urllib3.exceptions.HTTPError, OSError: the cluster does not answer.
    """
    checks: list[Check] = []
    try:
        for check in question(scope):
            checks.append(check)
    except (NotAsked, Halt) as why:
        checks.append(not_asked(subject, str(why)))
    except ApiError as error:
        if error.status == 403:
            checks.append(not_asked(subject, f"this user may not ask: {error}"))
        else:
            checks.append(fault(subject, f"the cluster refuses: {error}", "look at the cluster's control plane"))
    return checks


def _scope(stack: str, sandbox: Path | None) -> Scope:
    try:
        settings = stack_file.read(stack_file.find(stack))
    except Halt:
        settings = None
    standing, missing = None, ""
    try:
        standing = deployed(stack, sandbox)
    except Halt as halted:
        missing = str(halted)
    return Scope(stack, settings, standing, missing, sandbox is not None, _google(settings, sandbox))


def _google(settings: "Settings | None", sandbox: Path | None) -> Google | NotAsked:
    if sandbox is not None:
        return NotAsked("the sandbox has no Google Cloud")
    if settings is None:
        return NotAsked("there is no stack file here that names the project")
    try:
        return google(settings.cloud.project, settings.cloud.region)
    except NotAsked as why:
        return why


def _table(stack: str, checks: tuple[Check, ...]) -> Table:
    faults = [check for check in checks if check.verdict is Verdict.FAULT]
    asked = [check for check in checks if check.verdict is not Verdict.NOT_ASKED]
    verdict = f"{len(faults)} of {len(asked)} checks failed" if faults else f"all {len(asked)} checks are ok"
    return Table(
        title=f"stack {stack}",
        verdict=f"{verdict}, {len(checks) - len(asked)} not asked",
        state="bad" if faults else "good",
        columns=("group", "subject", "", "says"),
        rows=[(check.group, check.subject, check.verdict, check.says) for check in checks],
        notes=[f"{check.group}, {check.subject}: {check.fix}" for check in faults],
        whole=(0, 2),
    )

"""`multislice doctor` runs all groups of checks, one after the other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, waiting, write
from cli.answer import as_json as to_json
from cli.deployed import Deployed, NotDeployed, deployed
from cli.doctor import capacity, cluster, credentials
from cli.doctor.checks import Check, Findings, NotAsked, Scope, Verdict, failed, google, skipped
from cli.doctor.unconfirmed import as_table, unconfirmed
from infra.cluster.kubernetes import UNREACHABLE, ApiError
from infra.cluster.stacks import StacksError
from infra.review.table import Table

GROUPS: Mapping[str, tuple[Callable[[Scope], Findings], ...]] = {
    "credentials": (
        credentials.stack_file,
        credentials.stack,
        credentials.rights,
        credentials.bucket,
        credentials.gcloud,
        credentials.application_default,
        credentials.billing,
    ),
    "APIs": (credentials.kinds, credentials.services),
    "quota": (capacity.quotas, capacity.google_quota, capacity.zones),
    "versions": (cluster.node_versions, cluster.operators, cluster.programs),
    "clocks": (cluster.clock, cluster.node_clocks),
    "DNS": (cluster.endpoint, cluster.name_servers),
    "queues": (capacity.queues, cluster.controllers, capacity.submission, capacity.waiting),
    "nodes": (capacity.slices, capacity.pools),
}


GROUPS_OF_CLUSTER: Mapping[str, tuple[Callable[[Scope], Findings], ...]] = {
    "rights": (credentials.rights,),
    "APIs": (credentials.apis,),
    "versions": (cluster.node_versions, cluster.controllers),
    "clocks": (cluster.clock,),
    "DNS": (cluster.endpoint,),
    "queues": (capacity.queues, capacity.flavors),
    "nodes": (capacity.slices,),
}
"""Checks of a cluster that a kubeconfig selects."""


def doctor(stack: str, sandbox: Path | None, console: Console, *, as_json: bool) -> int:
    """Check a stack and return the exit status. `sandbox` is the folder of its sandbox. None: Google Cloud.

    A stack in Google Cloud also gets the list of assumptions that no run has confirmed. They do not affect the status.
    """
    with waiting(f"checking {stack}"):
        scope = scope_of(stack, sandbox)
        checks = tuple(examine(scope))
    assumed = unconfirmed(scope.settings) if scope.settings and sandbox is None else ()
    listed = [{"subject": each.subject, "assumption": each.assumption, "how": each.how} for each in assumed]
    answer = to_json({"stack": stack, "checks": checks, "not_confirmed": listed})
    tables = [_table(f"stack {stack}", checks), *([as_table(assumed)] if assumed else [])]
    write(answer, tables, Form.JSON if as_json else Form.TEXT, console)
    return NEGATIVE if any(check.verdict is Verdict.FAILED for check in checks) else 0


def doctor_of_cluster(deployed: Deployed, console: Console, *, as_json: bool) -> int:
    """Check a cluster that a kubeconfig selects, and return the exit status."""
    with waiting(f"checking {deployed.place}"):
        scope = Scope("", None, deployed, "", None, NotAsked("the stack file, which has the project, is not known"))
        checks = tuple(examine(scope, GROUPS_OF_CLUSTER))
    form = Form.JSON if as_json else Form.TEXT
    write(to_json({"place": deployed.place, "checks": checks}), [_table(deployed.place, checks)], form, console)
    return NEGATIVE if any(check.verdict is Verdict.FAILED for check in checks) else 0


def examine(scope: Scope, groups: Mapping[str, tuple[Callable[[Scope], Findings], ...]] = GROUPS) -> Iterator[Check]:
    """Yield the checks of all groups. A check that cannot be made does not affect the others."""
    for group, questions in groups.items():
        for question in questions:
            subject = question.__name__.replace("_", " ")
            try:
                checks = _answers(subject, question, scope)
            except UNREACHABLE as error:
                said = f"the cluster does not answer: {error}"
                checks = [failed(subject, said, "check the network and the group DNS below, then try again")]
                scope = replace(scope, silent=True)
            yield from (check.model_copy(update={"group": group, "fix": _here(scope, check.fix)}) for check in checks)


def _here(scope: Scope, fix: str) -> str:
    return fix.replace("kubectl ", f"{scope.deployed.reader.kubectl} ") if scope.deployed else fix


def _answers(subject: str, question: Callable[[Scope], Findings], scope: Scope) -> list[Check]:
    """Return the results up to the first check that cannot be made. Raise UNREACHABLE if the cluster is silent."""
    checks: list[Check] = []
    try:
        for check in question(scope):
            checks.append(check)
    except (NotAsked, Halt) as why:
        checks.append(skipped(subject, str(why)))
    except ApiError as error:
        if error.status == 403:
            checks.append(skipped(subject, f"this user is not allowed to read it: {error}"))
        else:
            checks.append(failed(subject, f"the cluster refuses: {error}", "check the control plane of the cluster"))
    return checks


def scope_of(stack: str, sandbox: Path | None) -> Scope:
    """Return the stack that checks examine. What is missing is a result of the checks."""
    settings, unread, found = None, "", None
    missing: str | NotAsked = ""
    try:
        settings = stack_file.read(stack_file.find(stack))
    except Halt as error:
        unread = str(error)
    try:
        found = deployed(stack, sandbox)
    except NotDeployed as why:
        missing = NotAsked(why.reason)
    except (Halt, StacksError) as error:
        missing = str(error)
    if sandbox is not None:
        cloud = NotAsked("the sandbox has no Google Cloud")
    elif settings is None:
        cloud = NotAsked("the stack file, which has the name of the project, cannot be read")
    else:
        try:
            cloud = google(settings.cloud.project, settings.cloud.region)
        except NotAsked as why:
            cloud = why
    return Scope(stack, settings, found, missing, sandbox, cloud, unread)


def _rows(checks: tuple[Check, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each check, and one for all that were skipped for the same reason."""
    why = Counter(check.says for check in checks if check.verdict is Verdict.SKIPPED)
    for check in checks:
        count = why.pop(check.says, 0) if check.verdict is Verdict.SKIPPED else 1
        if count > 1:
            yield "", f"{count} checks", check.verdict, check.says
        elif count:
            yield check.group, check.subject, check.verdict, check.says


def _table(title: str, checks: tuple[Check, ...]) -> Table:
    faults = [check for check in checks if check.verdict is Verdict.FAILED]
    asked = [check for check in checks if check.verdict is not Verdict.SKIPPED]
    verdict = f"{len(faults)} of {len(asked)} checks failed" if faults else f"all {len(asked)} checks passed"
    return Table(
        title=title,
        verdict=f"{verdict}, {len(checks) - len(asked)} skipped",
        state="bad" if faults else "good",
        columns=("group", "subject", "", "result"),
        rows=list(_rows(checks)),
        notes=[f"{check.group}, {check.subject}: {check.fix}" for check in faults],
        whole=(0, 2),
    )

"""`multislice preview` shows the plan of a real Pulumi engine before it is applied.

While it plans, the program reviews the price and whether the jobs can run (`infra.review`), and the policy pack checks
the rules.
"""

import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pulumi.automation import CommandError, EngineEvent
from rich.console import Console

from cli import engines, stack_file
from cli.answer import NEGATIVE, Form, waiting, write
from cli.stack_file import check_policy_file, files_of_project, policy_pack
from infra.review.preview import comment, preview_answers, preview_tables
from infra.review.review import REVIEW_FILE, Previewed, Review
from policy.rules import ALL_POLICIES
from sandbox import programs
from sandbox.engine import Engine, PolicyPack
from sandbox.site import create

_WITHOUT_RULES = (
    "expected the engine to run the policy pack, got a preview without it; the full output of"
    " `pulumi preview --policy-pack policy`, says why"
)


@dataclass(frozen=True)
class PreviewRequest:
    """Options of a preview."""

    stack: str
    engine: Literal["sandbox", "pulumi"]
    """`sandbox` works offline; `pulumi` is the user's own Pulumi, which compares with the deployed state."""
    save_plan: Path | None
    sandbox: Path | None
    """Folder of the sandbox whose state the plan is compared with. None: an empty state."""
    verbose: bool = False
    """Whether to print the tables of the review too."""


class Previewing(Protocol):
    """An engine for one stack."""

    def preview(self, on_event: Callable[[EngineEvent], None], save_plan: Path | None) -> object:
        """Preview the stack. Raise CommandError if the plan is refused."""
        ...


def preview(request: PreviewRequest, form: Form, console: Console) -> int:
    """Print the preview of a stack. Return the exit status."""
    path = stack_file.find(request.stack)
    stack_file.read(path)
    policy = _policy(request.stack)
    with _engine(request, path, policy) as engine, waiting(f"the engine plans {request.stack}"):
        found = run_preview(request.stack, engine, request.save_plan)
    if form is Form.MARKDOWN:
        console.out(comment(found))
    else:
        shown = [*preview_answers(found), *preview_tables(found, verbose=request.verbose)]
        write(found.model_dump_json(indent=1), shown, form, console)
    if found.errors or found.review is None:
        return 1
    return 0 if found.passes else NEGATIVE


def run_preview(stack: str, engine: Previewing, save_plan: Path | None) -> Previewed:
    """Return the engine's preview of the stack."""
    events: list[EngineEvent] = []
    started, refusal = time.monotonic(), None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "review.json"
        with _write_review_to(file):
            try:
                engine.preview(events.append, save_plan)
            except CommandError as error:
                refusal = str(error).strip()
        review = Review.model_validate_json(file.read_text()) if file.exists() else None
    findings = engines.findings(events, {about.id: about.severity for about in ALL_POLICIES})
    refused_by_rules = any(finding.level == "mandatory" for finding in findings)
    errors = engines.errors(events) if refusal else ()
    if not refusal and not engines.has_run_rules(events):
        errors = (_WITHOUT_RULES,)
    return Previewed(
        stack=stack,
        review=review,
        changes=engines.changes(events),
        unchanged=engines.unchanged(events),
        findings=findings,
        errors=errors or (() if refused_by_rules or not refusal else (refusal,)),
        seconds=time.monotonic() - started,
    )


@contextmanager
def _write_review_to(file: Path) -> Generator[None]:
    """Make the program, which runs in this process or a child of it, write its review to `file`."""
    os.environ[REVIEW_FILE] = str(file)
    try:
        yield
    finally:
        del os.environ[REVIEW_FILE]


@contextmanager
def _engine(request: PreviewRequest, path: Path, policy: PolicyPack) -> Generator[Previewing]:
    if request.engine == "sandbox" and not request.sandbox:
        with tempfile.TemporaryDirectory() as folder:
            yield Engine(create(Path(folder)), programs.found(programs.ENGINE), path, policy)
        return
    with engines.open_engine(path, request.sandbox, "preview", policy) as engine:
        yield engine


def _policy(stack: str) -> PolicyPack:
    settings = files_of_project().policy(stack)
    if not settings.is_file():
        return PolicyPack(policy_pack(), None)
    check_policy_file(settings)
    return PolicyPack(policy_pack(), settings)

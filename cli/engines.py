"""Runs the Pulumi engine that plans a stack and reads changes, broken rules and errors from its events."""

import re
import subprocess
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import override

from pulumi import automation
from pulumi.automation import EngineEvent
from pulumi.automation.events import StepEventMetadata

from cli import stack_file
from cli.answer import Halt
from cli.sandbox_folder import find_sandbox, lock_sandbox
from infra.review.review import Change, Finding
from infra.stack.project import find_project
from sandbox import programs
from sandbox.engine import Engine, PolicyPack

_LEFT_ALONE = ("same", "read", "refresh")
_OF_A_REPLACEMENT = ("replace", "-replacement", "-replaced", "-replace")
_PROVIDER = "pulumi:providers:"
"""Prefix of the types of providers. Pulumi does not count the default providers."""

_STACK = "::pulumi:pulumi:Stack::"
_TRACEBACK = "Traceback (most recent call last)"
_COLOUR = re.compile(r"<\{%.*?%\}>")
_LEVELS = ("mandatory", "advisory")
_SUMS_UP = ("preview failed", "update failed")
_ONLY_PLANNED = "expected resource operations for "
"""Start of Pulumi's message about every later resource, after the first failure of an `up` with a plan."""


OnEvent = Callable[[EngineEvent], None]


class PulumiEngine:
    """Previews an existing stack with the user's own Pulumi, its plugins, credentials and backend.

    It runs the program of `Pulumi.yaml` with the stack file of the project.
    """

    def __init__(self, stack: str, policy: PolicyPack | None = None) -> None:
        self._name = stack
        self._packs = [str(policy.folder)] if policy else None
        self._pack_settings = [str(policy.settings)] if policy and policy.settings else None

    def preview(self, on_event: OnEvent, save_plan: Path | None = None) -> automation.PreviewResult:
        """Preview `up` and write the plan to `save_plan`. Raise CommandError if the plan is refused."""
        return self._stack.preview(
            on_event=on_event,
            policy_packs=self._packs,
            policy_pack_configs=self._pack_settings,
            plan=str(save_plan.resolve()) if save_plan else None,
        )

    def preview_after_refresh(self, on_event: OnEvent) -> None:
        """Preview a refresh and the `up` that would follow. Raise CommandError if the plan is refused."""
        self._stack.preview(on_event=on_event, refresh=True)

    @cached_property
    def _stack(self) -> automation.Stack:
        try:
            return automation.Stack.select(self._name, _Checkout(work_dir=str(find_project())))
        except (OSError, subprocess.CalledProcessError, automation.InvalidVersionError) as error:
            got = "none" if isinstance(error, FileNotFoundError) else f"one that does not print its version: {error}"
            raise Halt(
                f"--engine pulumi needs the program `pulumi` on PATH, got {got}; install it"
                " (https://www.pulumi.com/docs/install/) or use the sandbox"
            ) from None
        except automation.StackNotFoundError:
            raise Halt(
                f"--stack must name a stack of this backend, got {self._name!r}; create it with `pulumi stack init"
                f" {self._name}`, or choose another backend with `pulumi login`"
            ) from None


class _Checkout(automation.LocalWorkspace):
    @override
    def select_stack(self, stack_name: str) -> None:
        """Check that the stack exists. The stack that the user selected in this project stays selected."""
        self._run_pulumi_cmd_sync(["stack", "--stack", stack_name])


@contextmanager
def open_engine(
    path: Path, sandbox: Path | None, command: str, policy: PolicyPack | None = None
) -> Generator[PulumiEngine | Engine]:
    """Provide the engine of a sandbox folder, or the user's own Pulumi if it is None, for the stack of a file.

    `command` is the command of `multislice` that uses it. Raise Halt if the sandbox does not exist or another command
    is using it.
    """
    if sandbox is None:
        yield PulumiEngine(stack_file.stack_name(path), policy)
        return
    site = find_sandbox(sandbox, stack_file.stack_name(path))
    # The engine replaces its copy of the stack file, and an `up` may be reading it.
    with lock_sandbox(site, command):
        yield Engine(site, programs.found(), path, policy)


def changes(events: Iterable[EngineEvent]) -> tuple[Change, ...]:
    """Return one change per resource, even if it takes several steps."""
    return tuple(changes_by_urn(events).values())


def changes_by_urn(events: Iterable[EngineEvent]) -> Mapping[str, Change]:
    """Return the changes by the URN of their resource."""
    found: dict[str, Change] = {}
    for step in _steps(events):
        operation = step.op.value
        if operation in _LEFT_ALONE:
            continue
        known = found.get(step.urn)
        # A provider reports the paths that differ in one of three ways; the most exact comes first.
        paths = {*(known.properties if known else ()), *(step.detailed_diff or step.diffs or step.keys or ())}
        operation = "replace" if operation.endswith(_OF_A_REPLACEMENT) else operation
        properties = tuple(sorted(paths))
        found[step.urn] = Change(operation=operation, type=step.type, name=name(step.urn), properties=properties)
    return found


def unchanged(events: Iterable[EngineEvent]) -> int:
    """Return the number of unchanged resources."""
    return len({step.urn for step in _steps(events) if step.op.value == "same"})


def findings(events: Iterable[EngineEvent], severities: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the broken rules, mandatory ones first.

    `severities` has the severity of each rule, because the Automation API leaves it out of its events.
    """
    broken = [each.policy_event for each in events if each.policy_event]
    return tuple(
        Finding(
            rule=event.policy_name,
            level=level,
            severity=severities.get(event.policy_name, "unknown"),
            # A finding about the whole stack has no resource.
            resource=name(event.resource_urn) if event.resource_urn and _STACK not in event.resource_urn else None,
            message=_plain(event.message),
        )
        for level in _LEVELS
        for event in broken
        if event.enforcement_level == level
    )


def has_run_rules(events: Iterable[EngineEvent]) -> bool:
    """Return whether a policy pack ran to its end. Otherwise a plan without broken rules proves little."""
    return any(event.summary_event.policy_packs for event in events if event.summary_event)


def errors(events: Iterable[EngineEvent]) -> tuple[str, ...]:
    """Return the errors for which the engine refuses the plan, except broken rules."""
    # After its summary the engine reports plugins that end slowly as errors.
    planning = takewhile(lambda event: event.summary_event is None, events)
    diagnostics = (event.diagnostic_event for event in planning if event.diagnostic_event)
    texts = (
        f"{name(each.urn)}: {_plain(each.message)}" if each.urn else _plain(each.message)
        for each in diagnostics
        if each.severity == "error" and not each.message.startswith(_ONLY_PLANNED)
    )
    return tuple(dict.fromkeys(text for text in texts if text not in _SUMS_UP))


def _steps(events: Iterable[EngineEvent]) -> Iterable[StepEventMetadata]:
    steps = (event.resource_pre_event.metadata for event in events if event.resource_pre_event)
    return (step for step in steps if not (step.type.startswith(_PROVIDER) and name(step.urn).startswith("default")))


def name(urn: str) -> str:
    """Return the name of a resource within the program."""
    return urn.rpartition("::")[2]


def _plain(message: str) -> str:
    return _COLOUR.sub("", message).partition(_TRACEBACK)[0].strip()

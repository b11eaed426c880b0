"""The Pulumi engines that plan a stack, and what their events say of the plan: changes, broken rules, errors."""

import re
import subprocess
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import override

from pulumi import automation
from pulumi.automation import EngineEvent
from pulumi.automation.events import StepEventMetadata

from cli import stack_file
from cli.halt import Halt
from cli.sandbox_folder import changing, existing
from infra.review.review import Change, Finding
from sandbox import programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine, PolicyPack

_LEFT_ALONE = ("same", "read", "refresh")
_OF_A_REPLACEMENT = ("replace", "-replacement", "-replaced", "-replace")
_PROVIDER = "pulumi:providers:"
"""Type of providers. Pulumi does not count its default ones."""

_STACK = "::pulumi:pulumi:Stack::"
_TRACEBACK = "Traceback (most recent call last)"
_COLOUR = re.compile(r"<\{%.*?%\}>")
_LEVELS = ("mandatory", "advisory")
_SUMS_UP = ("preview failed", "update failed")
_ONLY_PLANNED = "expected resource operations for "
"""Pulumi's message about every later resource, after the first failure of an `up` by a plan."""


OnEvent = Callable[[EngineEvent], None]


class PulumiEngine:
    """Previews of a stack that exists by the user's own Pulumi, with its plugins, credentials and backend.

    The program is that of `Pulumi.yaml`, the settings are the stack file of the checkout.
    """

    def __init__(self, stack: str, policy: PolicyPack | None = None) -> None:
        """Previews run the policy pack `policy`, if there is one."""
        self._name = stack
        self._packs = [str(policy.folder)] if policy else None
        self._pack_settings = [str(policy.settings)] if policy else None
        self._selected: automation.Stack | None = None

    def preview(self, on_event: OnEvent, save_plan: Path | None = None) -> automation.PreviewResult:
        """Preview what `up` would do, and write the plan to `save_plan`. Raises CommandError when it is refused."""
        return self._stack().preview(
            on_event=on_event,
            policy_packs=self._packs,
            policy_pack_configs=self._pack_settings,
            plan=str(save_plan.resolve()) if save_plan else None,
        )

    def preview_after_refresh(self, on_event: OnEvent) -> None:
        """Preview what a refresh would find, and what `up` would then do. Raises CommandError when it is refused."""
        self._stack().preview(on_event=on_event, refresh=True)

    def _stack(self) -> automation.Stack:
        if self._selected is None:
            self._selected = self._select()
        return self._selected

    def _select(self) -> automation.Stack:
        try:
            return automation.Stack.select(self._name, _Checkout(work_dir=str(CHECKOUT)))
        except (OSError, subprocess.CalledProcessError, automation.InvalidVersionError) as error:
            got = "none" if isinstance(error, FileNotFoundError) else f"one that does not print its version: {error}"
            raise Halt(
                f"--engine pulumi needs the program `pulumi` on PATH, got {got}; install it"
                " (https://www.pulumi.com/docs/install/) or use --engine sandbox"
            ) from None
        except automation.StackNotFoundError:
            raise Halt(
                f"--stack must name a stack of this backend, got {self._name!r}; make it, pulumi stack init"
                f" {self._name}, or choose another backend: pulumi login"
            ) from None


class _Checkout(automation.LocalWorkspace):
    """The repository as Pulumi's workspace."""

    @override
    def select_stack(self, stack_name: str) -> None:
        """Only check that it exists: the stack that the user has selected in this checkout stays selected."""
        self._run_pulumi_cmd_sync(["stack", "--stack", stack_name])


@contextmanager
def engine_of(path: Path, sandbox: Path | None, policy: PolicyPack | None = None) -> Generator[PulumiEngine | Engine]:
    """The engine of the sandbox in a folder, or of the user's own Pulumi (None), on the stack of a file.

    Raises:
        Halt, ProgramsError: there is no such sandbox, or something else changes it, or its programs are missing.
    """
    if sandbox is None:
        yield PulumiEngine(stack_file.stack_name(path), policy)
        return
    site = existing(sandbox)
    # The engine replaces its copy of the stack file, which an `up` may be reading.
    with changing(site):
        yield Engine(site, programs.found(), path, policy)


def changes(events: Iterable[EngineEvent]) -> tuple[Change, ...]:
    """Return the changes, one per resource, however many steps it takes."""
    return tuple(changes_by_urn(events).values())


def changes_by_urn(events: Iterable[EngineEvent]) -> Mapping[str, Change]:
    """Return the changes by the URN of the resource."""
    found: dict[str, Change] = {}
    for step in _steps(events):
        operation = step.op.value
        if operation in _LEFT_ALONE:
            continue
        replaced = operation.endswith(_OF_A_REPLACEMENT)
        known = found.get(step.urn)
        paths = {*(known.properties if known else ()), *_differ(step)}
        found[step.urn] = Change(
            operation="replace" if replaced else operation,
            type=step.type,
            name=name(step.urn),
            properties=tuple(sorted(paths)),
        )
    return found


def unchanged(events: Iterable[EngineEvent]) -> int:
    """Return the number of unchanged resources."""
    return len({step.urn for step in _steps(events) if step.op.value == "same"})


def findings(events: Iterable[EngineEvent], severities: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the broken rules, mandatory ones first.

    `severities` are by rule, because the Automation API leaves them out of its events.
    """
    broken = [event.policy_event for event in events if event.policy_event]
    return tuple(
        Finding(
            rule=told.policy_name,
            level=level,
            severity=severities.get(told.policy_name, "unknown"),
            resource=_of_a_resource(told.resource_urn),
            message=_plain(told.message),
        )
        for level in _LEVELS
        for told in broken
        if told.enforcement_level == level
    )


def rules_were_asked(events: Iterable[EngineEvent]) -> bool:
    """Return whether a policy pack ran to its end; without that, it means little that no rule is broken."""
    return any(event.summary_event.policy_packs for event in events if event.summary_event)


def errors(events: Iterable[EngineEvent]) -> tuple[str, ...]:
    """Return why the engine refuses the plan, without the broken rules."""
    # After its summary the engine reports plugins that were slow to end, as errors.
    planning = takewhile(lambda event: event.summary_event is None, events)
    told = (event.diagnostic_event for event in planning if event.diagnostic_event)
    texts = (
        f"{name(each.urn)}: {_plain(each.message)}" if each.urn else _plain(each.message)
        for each in told
        if each.severity == "error" and not each.message.startswith(_ONLY_PLANNED)
    )
    return tuple(dict.fromkeys(text for text in texts if text not in _SUMS_UP))


def _steps(events: Iterable[EngineEvent]) -> Iterable[StepEventMetadata]:
    told = (event.resource_pre_event.metadata for event in events if event.resource_pre_event)
    return (step for step in told if not (step.type.startswith(_PROVIDER) and name(step.urn).startswith("default")))


def _differ(step: StepEventMetadata) -> Iterable[str]:
    """The paths that differ; a provider reports them in one of three ways, the most exact first."""
    return step.detailed_diff or step.diffs or step.keys or ()


def _of_a_resource(urn: str | None) -> str | None:
    """The resource of a finding; a finding about the whole stack has the stack's URN."""
    return name(urn) if urn and _STACK not in urn else None


def name(urn: str) -> str:
    """Return the resource's name within the program."""
    return urn.rpartition("::")[2]


def _plain(message: str) -> str:
    """The message without colours and traceback."""
    return _COLOUR.sub("", message).partition(_TRACEBACK)[0].strip()

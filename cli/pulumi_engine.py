"""The engine of the user's own Pulumi, with its plugins and backend.

The program is that of `Pulumi.yaml`, the settings are the stack file of the checkout; credentials, backend and the rest
of the environment are the user's.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import override

from pulumi import automation

from cli.halt import Halt
from sandbox.daemon import CHECKOUT
from sandbox.engine import PolicyPack

OnEvent = Callable[[automation.EngineEvent], None]


class PulumiEngine:
    """Previews of a stack that exists."""

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

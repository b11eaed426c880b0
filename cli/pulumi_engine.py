"""The Pulumi engine on the user's own Pulumi: its plugins, its backend, and the stack that lies there.

Owns what is told to Pulumi. The program is that of `Pulumi.yaml`, the settings are the stack file of the checkout;
credentials, backend and everything else of the environment are the user's.
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
    """Previews of a stack that exists already."""

    def __init__(self, stack: str, policy: PolicyPack | None = None) -> None:
        """Previews are held to `policy`, if there is one."""
        self._name = stack
        self._packs = [str(policy.folder)] if policy else None
        self._pack_settings = [str(policy.settings)] if policy else None
        self._selected: automation.Stack | None = None

    def preview(self, on_event: OnEvent, save_plan: Path | None = None) -> automation.PreviewResult:
        """What `up` would do, also written to `save_plan`. Raises CommandError when the plan is refused."""
        return self._stack().preview(
            on_event=on_event,
            policy_packs=self._packs,
            policy_pack_configs=self._pack_settings,
            plan=str(save_plan.resolve()) if save_plan else None,
        )

    def preview_after_refresh(self, on_event: OnEvent) -> None:
        """What a refresh would find, and what `up` would do then. Raises CommandError when the plan is refused."""
        self._stack().preview(on_event=on_event, refresh=True)

    def _stack(self) -> automation.Stack:
        if self._selected is None:
            self._selected = self._select()
        return self._selected

    def _select(self) -> automation.Stack:
        try:
            return automation.Stack.select(self._name, _Checkout(work_dir=str(CHECKOUT)))
        except (OSError, subprocess.CalledProcessError, automation.InvalidVersionError) as error:
            got = "none" if isinstance(error, FileNotFoundError) else f"one that does not tell its version: {error}"
            raise Halt(
                f"--engine pulumi needs the program `pulumi` on PATH, got {got}; install it"
                " (https://www.pulumi.com/docs/install/) or take --engine sandbox"
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
        """Only look whether it exists: which stack the user has selected in this checkout stays as it is."""
        self._run_pulumi_cmd_sync(["stack", "--stack", stack_name])

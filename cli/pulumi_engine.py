"""The Pulumi engine on the user's own Pulumi: its plugins, its backend, and the stack that lies there.

Owns what is told to Pulumi. The program is that of `Pulumi.yaml`, the settings are the stack file of the checkout;
credentials, backend and everything else of the environment are the user's.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, override

from pulumi import automation

from cli.halt import Halt
from sandbox.daemon import CHECKOUT
from sandbox.engine import PolicyPack

OnEvent = Callable[[automation.EngineEvent], None]


class PulumiEngine:
    """Preview, up, refresh and destroy of a stack that exists already."""

    def __init__(self, stack: str, policy: PolicyPack | None = None) -> None:
        """Previews and `up` are held to `policy`, if there is one."""
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

    def up(self, on_event: OnEvent, plan: Path | None = None) -> Mapping[str, Any]:
        """Make it so, or `plan` and nothing else; the stack's outputs. Raises CommandError when a step fails."""
        done = self._stack().up(
            on_event=on_event,
            policy_packs=self._packs,
            policy_pack_configs=self._pack_settings,
            plan=str(plan.resolve()) if plan else None,
        )
        return {name: output.value for name, output in done.outputs.items()}

    def refresh(self, on_event: OnEvent) -> automation.RefreshResult:
        """Read what is there into the state."""
        return self._stack().refresh(on_event=on_event)

    def destroy(self, on_event: OnEvent) -> None:
        """Destroy all but protected resources and what those need. Raises CommandError when a step fails."""
        # The program runs too, for its hooks ask whether a job is running.
        self._stack().destroy(on_event=on_event, exclude_protected=True, run_program=True)

    def outputs(self) -> Mapping[str, Any]:
        """What the stack exports now."""
        return {name: output.value for name, output in self._stack().outputs().items()}

    def _stack(self) -> automation.Stack:
        if self._selected is None:
            self._selected = self._select()
        return self._selected

    def _select(self) -> automation.Stack:
        try:
            return automation.Stack.select(self._name, _Checkout(work_dir=str(CHECKOUT)))
        except FileNotFoundError:
            raise Halt(
                "--engine pulumi needs the program `pulumi` on PATH, got none; install it"
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

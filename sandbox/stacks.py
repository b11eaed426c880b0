"""The stacks of a sandbox, with the same interface as stacks in Google Cloud."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, override

from infra.cluster.kubernetes import ApiServer
from infra.cluster.stacks import Stacks, StacksError, run_command
from sandbox.programs import found
from sandbox.site import administrator, load, start_command


class SandboxStacks(Stacks):
    """The stacks of the sandbox in a folder, whether it is running or not."""

    def __init__(self, root: Path) -> None:
        """Use the sandbox in `root`.

        Raises:
            StacksError: there is no sandbox in `root`.
            ProgramsError: its programs are not built.
        """
        try:
            self.site = load(root)
        except FileNotFoundError:
            raise StacksError(
                f"expected a sandbox in the folder {root}, found none; create it with `{start_command(root)}`"
            ) from None
        self.sandbox, self.storage = root, self.site.storage.options
        self._pulumi = str(found(["pulumi"]).path("pulumi"))

    @override
    def ask(self, *arguments: str) -> str:
        # Imports the Automation API, which takes a second.
        from sandbox.engine import environment, project_folder

        variables = os.environ | environment(self.site)
        return run_command([self._pulumi, *arguments, "--non-interactive"], project_folder(self.site), variables)

    @override
    def api(self, outputs: Mapping[str, Any]) -> ApiServer:
        return administrator(self.site)

    @override
    def files(self, bucket: str) -> str:
        return str(self.site.buckets / bucket.removeprefix("gs://"))

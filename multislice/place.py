"""Where calls go: a stack's cluster, bucket and slices, found by the stack's name.

Owns the way from `cli.deployed` to these, and the look whether a call can be placed there at all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cli.deployed import Deployed, deployed
from cli.halt import Halt
from infra import names
from infra.jobs import CALLS_OUTPUT, CallSettings
from infra.kubernetes import ApiServer
from multislice.errors import NoSuchStack, Refused
from sandbox.site import load
from workloads.call.folder import CallFolder, gcs


@dataclass(frozen=True)
class Place:
    """A stack as calls see it."""

    stack: str
    api: ApiServer
    settings: CallSettings
    filesystem: Any
    """Of fsspec, for the bucket."""
    sandbox: Path | None
    """Folder of the sandbox that has the stack; None: it is one of the user's own Pulumi."""

    def folder(self, namespace: str, call: str) -> CallFolder:
        """Of a call's files."""
        return CallFolder(self.filesystem, f"{self.settings.bucket}/{names.call_folder(namespace, call)}")

    def url(self, namespace: str, call: str) -> str:
        """The same folder, as hosts find it."""
        return f"gs://{self.folder(namespace, call).path}"

    def again(self, call: str, namespace: str) -> str:
        """The expression by which a call is found again."""
        teams = self.settings.namespaces
        team = next((team for team in teams if teams[team] == namespace), "")
        whose = f", team={team!r}" if len(teams) > 1 else ""
        where = "" if self.sandbox is None else f", sandbox={str(self.sandbox)!r}"
        return f"multislice.attach({call!r}, stack={self.stack!r}{whose}{where})"

    def require(self, group: str, count: int) -> None:
        """See that the stack has the slices.

        Raises:
            Refused: it has no such group, or not so many.
        """
        groups = self.settings.slices
        if group not in groups:
            raise Refused(
                f"expected slices of stack {self.stack} ({', '.join(groups)}), got {group!r}; name one of them"
            )
        if not 1 <= count <= groups[group].count:
            raise Refused(
                f"expected count from 1 to the {groups[group].count} slices of {group} in stack {self.stack}, got"
                f" {count}; ask for fewer, or raise slices.{group}.count in its file"
            )

    def team(self, name: str | None) -> str:
        """The team of that name; None: the only one.

        Raises:
            Refused: there is no such team, or it takes a name to know.
        """
        teams = self.settings.namespaces
        found = [team for team in teams if name in (None, team)]
        if len(found) != 1:
            got = "got no name" if name is None else f"got {name!r}"
            raise Refused(f"expected a team of stack {self.stack} ({', '.join(teams)}), {got}; say team=")
        return found[0]


def place(stack: str, sandbox: Path | None) -> Place:
    """The stack of that name, in the sandbox in a folder or of the user's own Pulumi.

    Raises:
        NoSuchStack: it is not up, cannot be asked, or tells nothing of calls.
    """
    try:
        found = deployed(stack, sandbox)
        settings = _settings(found)
        filesystem = _filesystem(sandbox)
    except Halt as halt:
        here = "without sandbox=" if sandbox is None else f"with sandbox={str(sandbox)!r}"
        raise NoSuchStack(
            f"{halt}\n(asked {here}, which says where the stack is: a sandbox's folder, or none)"
        ) from None
    return Place(stack, found.api, settings, filesystem, sandbox)


def _settings(found: Deployed) -> CallSettings:
    try:
        return CallSettings.model_validate(found.outputs.get(CALLS_OUTPUT))
    except ValidationError:
        raise Halt(
            f"expected stack {found.stack} to tell what calls need, got none that this version reads;"
            f" run `pulumi up --stack {found.stack}`"
        ) from None


def _filesystem(sandbox: Path | None) -> Any:
    if sandbox is None:
        return gcs()
    return gcs(endpoint_url=load(sandbox).gcs_url, token="anon", project="sandbox")

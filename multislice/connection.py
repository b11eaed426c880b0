"""Finds the cluster, bucket, slices and teams of a stack for calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.cluster.kubernetes import FORBIDDEN, UNREACHABLE, ApiError, ApiServer
from infra.cluster.stacks import Stacks, StacksError, read_published
from infra.stack import names
from infra.stack.command_lines import command_line
from infra.stack.published import Published, RecordError, join_records
from infra.stack.tpu import shapes_of_type
from multislice.errors import NoSuchStack, Refused, cluster
from workloads.call.folder import CallFolder, gcs


@dataclass(frozen=True)
class StackConnection:
    """A stack on which calls run."""

    stack: str
    api: ApiServer
    settings: Published
    filesystem: Any
    """fsspec file system of the bucket."""
    sandbox: Path | None
    """Folder of the sandbox that has the stack. None: the user's own Pulumi has it."""

    def folder(self, namespace: str, call: str) -> CallFolder:
        """Return the folder of a call's files."""
        return CallFolder(self.filesystem, f"{self.settings.bucket}/{names.call_folder(namespace, call)}")

    def url(self, namespace: str, call: str) -> str:
        """Return the URL of the same folder, for hosts."""
        return f"gs://{self.folder(namespace, call).path}"

    def group_of(self, accelerator: str) -> str:
        """Return the slice group whose slices have a name of Cloud TPU such as `v6e-16`.

        Raise Refused if there is no such group, or several.
        """
        groups, wanted = self.settings.slices, shapes_of_type(accelerator)
        found = [name for name, group in groups.items() if group.shape in wanted]
        if len(found) > 1:
            raise Refused(
                f"expected an accelerator of one slice group of stack {self.stack}, got {accelerator!r} of"
                f" {', '.join(found)}; pass slices= with one of them"
            )
        if not found:
            there = ", ".join(f"{group.shape.accelerator_type} (slices={name!r})" for name, group in groups.items())
            raise Refused(f"expected an accelerator of stack {self.stack}: {there}; got {accelerator!r}")
        return found[0]

    def require(self, group: str, count: int) -> None:
        """Raise Refused if the stack does not have the group, or not as many slices."""
        groups = self.settings.slices
        if group not in groups:
            raise Refused(f"expected slices of stack {self.stack} ({', '.join(groups)}), got {group!r}")
        if not 1 <= count <= groups[group].count:
            raise Refused(
                f"expected count from 1 to the {groups[group].count} slices of {group} in stack {self.stack}, got"
                f" {count}; request fewer, or raise slices.{group}.count in the stack file"
            )

    def require_pathways(self, group: str) -> None:
        """Raise Refused if the stack does not run calls by Pathways on this slice group."""
        if self.settings.functions.pathways is None:
            raise Refused(
                f"expected stack {self.stack} to have the section functions.pathways, which backend='pathways' needs;"
                " add it to the stack file and deploy it, or leave out backend="
            )
        shape = self.settings.slices[group].shape
        if shape.pathways_instance is None:
            raise Refused(
                f"expected slices of a machine type that Pathways knows, got {shape.machine_type} of {group}; choose"
                " another slice group, or leave out backend="
            )

    def team(self, name: str | None) -> str:
        """Return the team `name`, or the only team if it is None. Raise Refused if there is no such team."""
        teams = self.settings.namespaces
        found = [team for team in teams if name in (None, team)]
        if len(found) != 1:
            got = "got no name" if name is None else f"got {name!r}"
            raise Refused(f"expected a team of stack {self.stack} ({', '.join(teams)}), {got}; pass team=")
        return found[0]


def connect(stack: str, sandbox: str | Path | None) -> StackConnection:
    """Return a stack of the sandbox in a folder, or of the user's own Pulumi if `sandbox` is None.

    If Pulumi cannot read the stack, it is that of the kubeconfig's current context: members of a team may have no
    access to Pulumi's state.

    Raises:
        NoSuchStack: The stack is not up, cannot be reached, or has published nothing for calls.
    """
    folder = None if sandbox is None else Path(sandbox)
    try:
        stacks = Stacks()
        if folder:
            # Other stacks need nothing of the sandbox.
            from sandbox.stacks import SandboxStacks

            stacks = SandboxStacks(folder)
        outputs = stacks.outputs(stack)
        api = stacks.api(outputs)
    except StacksError as error:
        found = _of_kubeconfig(stack) if folder is None else None
        if found:
            return found
        here = "without sandbox=" if sandbox is None else f"with sandbox={str(sandbox)!r}"
        raise NoSuchStack(
            f"stack {stack} cannot be read: {error}\n(tried {here}; sandbox= is the folder of the sandbox that has the"
            " stack, or None for your own Pulumi or the current context of your kubeconfig)"
        ) from None
    record = _record(stack, api, outputs.get("queues", {}).values(), folder)
    filesystem = gcs(**stacks.storage)
    return StackConnection(stack, api, record, filesystem, folder)


def _of_kubeconfig(stack: str) -> StackConnection | None:
    """Return the stack of the kubeconfig's current context. None: it is another stack, or there is none.

    Raise NoSuchStack if the record cannot be read.
    """
    try:
        api, namespace = ApiServer.of_kubeconfig(None, None)
        found = read_published(api, namespace)
    except UNREACHABLE:
        return None
    except RecordError as error:
        raise NoSuchStack(str(error)) from None
    if found is None or found.stack != stack:
        return None
    from sandbox.site import storage_beside

    near = storage_beside(api.url)
    filesystem = gcs(**near.options) if near else gcs()
    return StackConnection(stack, api, _record(stack, api, [namespace], None), filesystem, None)


def _record(stack: str, api: ApiServer, namespaces: Iterable[str], sandbox: Path | None) -> Published:
    hint = f"stack {stack} has published nothing for calls"
    up = command_line("up", stack, *(("--sandbox", str(sandbox)) if sandbox else ()))
    found: list[Published] = []
    with cluster(stack):
        for namespace in namespaces:
            try:
                record = read_published(api, namespace)
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                hint = f"no team of stack {stack} has you as a member: {error}"
                continue
            except RecordError as error:
                raise NoSuchStack(str(error)) from None
            found += [record] if record else []
    if not any(record.image for record in found):
        raise NoSuchStack(f"{hint}; it needs an image, and an `up` of this version: run `{up}`")
    return join_records(found)

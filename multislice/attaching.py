"""Finds a call that was submitted before, by its name."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from infra.jobs import call_spec_of
from infra.kubernetes import ApiError
from infra.names import JOBSETS
from multislice.call import Call
from multislice.errors import CallError, CallGone, Refused, bucket, cluster
from multislice.place import Place, place
from multislice.submission import is_call_name
from workloads.spec import CallSpec

_FORBIDDEN = 403


def attach(call: str, *, stack: str, team: str | None = None, sandbox: str | Path | None = None) -> Call:
    """Return a call that was submitted before. This works on any machine that can reach the stack.

    Args:
        call: `id` of the call.
        stack: Name of the stack that runs it.
        team: Team of the call. Default: the only team whose namespace you may read. A JobSet has the place of its
            result and the key that seals it, so a JobSet of another team must not be used by mistake.
        sandbox: Folder of the sandbox that has the stack. Default: your own Pulumi has it.

    Raises:
        multislice.Refused: The team does not exist, or is needed.
        multislice.CallGone: The team has no such call.
        multislice.NoSuchStack: The stack cannot be reached.
    """
    return find_call(call, place(stack, None if sandbox is None else Path(sandbox)), team)


def forget(call: str, *, stack: str, team: str | None = None, sandbox: str | Path | None = None) -> None:
    """Cancel a call and remove all its files, even if the call no longer exists.

    The arguments are those of `attach`.

    Raises:
        multislice.Refused: The name is not valid, or the team does not exist or is needed.
        multislice.NoSuchStack: The stack cannot be reached.
        multislice.BucketFailed: The bucket cannot be written.
    """
    if not is_call_name(call):
        raise Refused(f"expected the name of a call, such as train-1f2e3d4c, got {call!r}; nothing was removed")
    forget_call(call, place(stack, None if sandbox is None else Path(sandbox)), team)


def find_call(call: str, stack: Place, team: str | None = None) -> Call:
    """Return a call on a stack. Raise as `attach` does."""
    namespaces = _namespaces(stack, team)
    seen, hidden = _seen(stack, namespaces, call)
    if len(seen) > 1:
        teams = ", ".join(name for name, namespace in namespaces.items() if namespace in seen)
        raise Refused(
            f"expected the team of call {call!r}, because several teams of stack {stack.stack} have a call of this"
            f" name ({teams}); pass team="
        )
    for namespace, spec in seen.items():
        if spec is not None:
            return Call(call, namespace, stack, spec)
    unread = f"; namespaces that you may not read: {', '.join(hidden)}" if hidden else ""
    raise CallGone(f"stack {stack.stack} has no call {call!r}{unread}; it was cancelled, or ended more than a day ago")


def forget_call(call: str, stack: Place, team: str | None = None) -> None:
    """Remove a call and its files from a stack. Raise as `forget` does."""
    try:
        find_call(call, stack, team).forget()
    except CallGone:
        seen, _ = _seen(stack, _namespaces(stack, team), call)
        with bucket(stack.settings.bucket):
            for namespace in seen:
                stack.folder(namespace, call).remove()


def _namespaces(stack: Place, team: str | None) -> Mapping[str, str]:
    return stack.settings.namespaces if team is None else {team: stack.settings.namespaces[stack.team(team)]}


def _seen(stack: Place, namespaces: Mapping[str, str], call: str) -> tuple[dict[str, CallSpec | None], list[str]]:
    """Return the calls of this name by namespace, and the namespaces that this user may not read."""
    seen: dict[str, CallSpec | None] = {}
    hidden: list[str] = []
    for namespace in sorted(set(namespaces.values())):
        with cluster(stack.stack):
            try:
                seen[namespace] = _spec(stack, namespace, call)
            except ApiError as error:
                # Members of one team may not read the namespaces of others.
                if error.status != _FORBIDDEN:
                    raise
                hidden.append(namespace)
    return seen, hidden


def _spec(stack: Place, namespace: str, call: str) -> CallSpec | None:
    jobset = stack.api.find(f"{JOBSETS.format(namespace)}/{call}")
    try:
        return None if jobset is None else call_spec_of(jobset)
    except ValidationError:
        raise CallError(
            f"call {call!r} was created by another version of this package; attach to it with that version"
        ) from None

"""Find a call again that was submitted before, by its name."""

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
    """Return the call of that name, from any process or machine that can reach the stack.

    Args:
        call: its `id`.
        stack: the stack that runs it.
        team: the team of the call; unset, the only team whose namespace you may read. A JobSet says where its result
            is and with which key it is sealed, so the JobSet of another team must not be used in its place.
        sandbox: folder of the sandbox that has the stack; unset, your own Pulumi has it.

    Raises:
        multislice.Refused: there is no such team, or a team is needed.
        multislice.CallGone: the team has no such call.
        multislice.NoSuchStack: the stack cannot be reached.
    """
    return found_call(call, place(stack, None if sandbox is None else Path(sandbox)), team)


def forget(call: str, *, stack: str, team: str | None = None, sandbox: str | Path | None = None) -> None:
    """Cancel the call of that name and remove all its files, also those of a call that is gone.

    The arguments are those of `attach`.

    Raises:
        multislice.Refused: no call has such a name, there is no such team, or a team is needed.
        multislice.NoSuchStack: the stack cannot be reached.
        multislice.BucketFailed: the bucket cannot be written.
    """
    if not is_call_name(call):
        raise Refused(f"expected the name of a call, such as train-1f2e3d4c, got {call!r}; nothing was removed")
    forget_call(call, place(stack, None if sandbox is None else Path(sandbox)), team)


def found_call(call: str, stack: Place, team: str | None = None) -> Call:
    """Return the call of that name on a stack; raises as `attach` does."""
    namespaces = _namespaces(stack, team)
    seen, hidden = _seen(stack, namespaces, call)
    if len(seen) > 1:
        teams = ", ".join(name for name, namespace in namespaces.items() if namespace in seen)
        raise Refused(
            f"expected the team of call {call!r}, because several teams have such a call in stack"
            f" {stack.stack} ({teams}); pass team="
        )
    for namespace, spec in seen.items():
        if spec is not None:
            return Call(call, namespace, stack, spec)
    besides = f"; namespaces that you may not read: {', '.join(hidden)}" if hidden else ""
    raise CallGone(f"stack {stack.stack} has no call {call!r}{besides}; it was cancelled, or ended more than a day ago")


def forget_call(call: str, stack: Place, team: str | None = None) -> None:
    """Remove what is left of a call of that name on a stack; raises as `forget` does."""
    try:
        found_call(call, stack, team).forget()
    except CallGone:
        seen, _ = _seen(stack, _namespaces(stack, team), call)
        with bucket(stack.settings.bucket):
            for namespace in seen:
                stack.folder(namespace, call).remove()


def _namespaces(stack: Place, team: str | None) -> Mapping[str, str]:
    return stack.settings.namespaces if team is None else {team: stack.settings.namespaces[stack.team(team)]}


def _seen(stack: Place, namespaces: Mapping[str, str], call: str) -> tuple[dict[str, CallSpec | None], list[str]]:
    """The calls of that name by namespace, and the namespaces that this user may not read."""
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
            f"call {call!r} was made by another version of this package; attach to it from the environment of that one"
        ) from None

"""Operations of the engine whose program could not reach it at all, begun once more.

For all channels of a process gRPC keeps what it knows of an address. Where an engine happens to listen on the port at
which an earlier one was missed a moment ago, the program's first call is refused without a try. Nothing has been
declared by then, and the next engine listens elsewhere.
"""

from collections.abc import Callable

from pulumi import automation

OnEvent = Callable[[automation.EngineEvent], None]

STACK_TYPE = "pulumi:pulumi:Stack"
_UNREACHED = ("Resource monitor has terminated", "failed to connect to all addresses")
"""What the SDK makes of a call that does not get through (pulumi/runtime/settings.py, grpc_error_to_exception), and
gRPC's own words, which stay where the call was one that writes the log."""


def with_second_try[Done](operation: Callable[[OnEvent], Done], on_event: OnEvent) -> Done:
    """What `operation` gives, which is carried out again if its program could declare nothing.

    Raises:
        CommandError: it failed otherwise, or again.
    """
    declared = False

    def noting(event: automation.EngineEvent) -> None:
        nonlocal declared
        told, said = event.resource_pre_event, event.diagnostic_event
        declared = declared or (told is not None and told.metadata.type != STACK_TYPE)
        if not (said and _unreached(said.message)):
            on_event(event)

    try:
        return operation(noting)
    except automation.CommandError as error:
        if declared or not _unreached(str(error)):
            raise
    return operation(on_event)


def _unreached(message: str) -> bool:
    return any(words in message for words in _UNREACHED)

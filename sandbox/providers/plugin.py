"""The plugin side of Pulumi's provider protocol, over plain Python values.

`pulumi.provider.experimental` serves only components here: its other calls lose the old inputs, do not support unknown
values, and put a traceback into every error message.
"""

import asyncio
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, empty_pb2, struct_pb2
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse, Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2
from urllib3.exceptions import HTTPError

from infra.cluster.kubernetes import ApiError, Json
from sandbox.providers.values import Change, plain_object, wire_object

_MESSAGE_BYTES = 400 * 1024 * 1024
_PARALLEL_CALLS = 64
_ENGINE_CHECK_SECONDS = 1.0


class Refusal(Exception):
    """Raised when the cloud refuses a request. The user sees the message unchanged."""


class HalfMade(Refusal):
    """Raised when the resource exists, but not as declared."""


class NotReady(Refusal):
    """Raised when the object exists but did not become ready. It is kept in the state."""

    def __init__(self, message: str, resource_id: str, state: Json) -> None:
        super().__init__(message)
        self.resource_id = resource_id
        self.state = state


@dataclass(frozen=True)
class Resource:
    """A resource as the engine remembers it."""

    urn: str
    id: str
    inputs: Json
    state: Json

    @property
    def type(self) -> str:
        return type_of(self.urn)


@dataclass(frozen=True)
class Diff:
    """How a resource must change."""

    changes: tuple[Change, ...]
    replaces: frozenset[str]
    """Paths of `changes` that need a new resource."""
    same_name: bool
    """Whether the old resource must be deleted first, because the new one would have the same name."""


class Plugin(ABC):
    """Operations of a plugin on resources. Several threads call them at the same time.

    States and inputs may contain secrets, and in previews unknown values.
    """

    def __init__(self, package: str) -> None:
        self.version = version(package)
        self.config: Json = {}
        self.warn: Callable[[str, str], None] = lambda urn, message: None
        """Show the user a warning about a resource. Does nothing until the plugin is served."""

    def check_config(self, config: Json) -> Json:
        """Return the provider's configuration as the state keeps it."""
        return config

    def diff_config(self, old: Json, new: Json) -> list[str]:
        """Return the keys of the configuration whose change replaces the provider, and so all its resources."""
        del old, new
        return []

    def check(self, urn: str, old: Json, new: Json, seed: bytes) -> Json:
        """Return the inputs to continue with: `new`, with a name if it needs one and has none."""
        del urn, old, seed
        return new

    @abstractmethod
    def diff(self, old: Resource, new: Json) -> Diff:
        """Return the changes that an update from `old` to the inputs `new` makes."""

    @abstractmethod
    def create(self, urn: str, inputs: Json, timeout_seconds: float, *, preview: bool) -> tuple[str, Json]:
        """Create the resource. Return its id (empty in previews) and state."""

    def read(self, resource: Resource) -> tuple[Json, Json] | None:
        """Return the inputs and state of the existing resource; None when it is gone. Default: it has not changed."""
        return resource.inputs, resource.state

    @abstractmethod
    def update(self, old: Resource, new: Json, timeout_seconds: float, *, preview: bool) -> Json:
        """Update the resource. Return the state after that."""

    def delete(self, resource: Resource, timeout_seconds: float) -> None:
        """Delete the resource and wait until it is gone. Default: it exists only in the state."""
        del resource, timeout_seconds

    def invoke(self, token: str, arguments: Json) -> Json:
        raise Refusal(f"the sandbox has no function {token}({', '.join(arguments)})")

    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        raise Refusal(f"the sandbox has no component {request.resource_type}")


def type_of(urn: str) -> str:
    """Return the resource type in a URN, without its parents' types."""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    """Return the program's own name for the resource."""
    return urn.split("::", 3)[3]


def serve(plugin: Plugin) -> None:
    """Serve `plugin` to the engine that started this process, until the engine ends."""

    async def run() -> None:
        # The SDK registers a component's children on these threads and blocks each of them until the child exists.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_PARALLEL_CALLS))
        limits = [(f"grpc.max_{way}_message_length", _MESSAGE_BYTES) for way in ("send", "receive")]
        engine_address = sys.argv[-1]
        engine_log = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine_address)).Log

        def warn(urn: str, message: str) -> None:
            engine_log(engine_pb2.LogRequest(severity=engine_pb2.LogSeverity.WARNING, urn=urn, message=message))

        plugin.warn = warn
        server = grpc.aio.server(options=limits)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(_Servicer(plugin, engine_address), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        engine = os.getppid()
        print(port, flush=True)  # noqa: T201 - the engine reads the port from here
        while os.getppid() == engine:  # An engine that was killed cannot end its plugins.
            await asyncio.sleep(_ENGINE_CHECK_SECONDS)
        os._exit(1)  # Threads that still wait for an object would block a normal exit.

    asyncio.run(run())


class _Components(Provider):
    """Components, the only call that the SDK's servicer serves."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        return await self._plugin.construct(request)


class _Servicer(ProviderServicer):
    def __init__(self, plugin: Plugin, engine_address: str) -> None:
        super().__init__([], plugin.version, _Components(plugin), engine_address)
        self.plugin = plugin
        # Separate threads, because all default ones may wait for the calls answered here.
        self._threads = ThreadPoolExecutor(_PARALLEL_CALLS)

    async def _answer(self, context: Any, call: Callable[[], Any]) -> Any:
        """Return the result of `call`; a refusal ends the request with its message unchanged."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except NotReady as error:
            state, detail = wire_object(error.state), any_pb2.Any()
            failed = provider_pb2.ErrorResourceInitFailed
            detail.Pack(failed(id=error.resource_id, properties=state, reasons=[str(error)]))
            status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except (Refusal, ApiError) as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except HTTPError as error:
            message = f"configured Kubernetes cluster is unreachable: {error}; start the sandbox with `multislice up`"
            await context.abort(grpc.StatusCode.UNAVAILABLE, message)

    async def Construct(self, request: Any, context: Any) -> Any:
        try:
            return await self._construct(request, context)
        except Refusal as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    async def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=wire_object(self.plugin.check_config(plain_object(request.news))))

    async def DiffConfig(self, request: Any, context: Any) -> Any:
        old, new = plain_object(request.old_inputs), plain_object(request.news)
        some = provider_pb2.DiffResponse.DIFF_SOME if old != new else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, replaces=self.plugin.diff_config(old, new))

    async def Configure(self, request: Any, context: Any) -> Any:
        self.plugin.config = plain_object(request.args)
        # Output values are not accepted, because the SDK can read only secret ones.
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    async def Check(self, request: Any, context: Any) -> Any:
        old, new = plain_object(request.olds), plain_object(request.news)
        inputs = await self._answer(context, lambda: self.plugin.check(request.urn, old, new, request.randomSeed))
        return provider_pb2.CheckResponse(inputs=wire_object(inputs))

    async def Diff(self, request: Any, context: Any) -> Any:
        old, new = _resource(request, request.old_inputs, request.olds), plain_object(request.news)
        diff = await self._answer(context, lambda: self.plugin.diff(old, new))
        return _diff_response(diff, request.ignoreChanges)

    async def Create(self, request: Any, context: Any) -> Any:
        inputs, preview = plain_object(request.properties), request.preview
        create = self.plugin.create
        created = self._answer(context, lambda: create(request.urn, inputs, request.timeout, preview=preview))
        resource_id, state = await created
        return provider_pb2.CreateResponse(id=resource_id, properties=wire_object(state))

    async def Read(self, request: Any, context: Any) -> Any:
        resource = _resource(request, request.inputs, request.properties)
        found = await self._answer(context, lambda: self.plugin.read(resource))
        if found is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(id=request.id, inputs=wire_object(found[0]), properties=wire_object(found[1]))

    async def Update(self, request: Any, context: Any) -> Any:
        old, new = _resource(request, request.old_inputs, request.olds), plain_object(request.news)
        update = self.plugin.update
        state = await self._answer(context, lambda: update(old, new, request.timeout, preview=request.preview))
        return provider_pb2.UpdateResponse(properties=wire_object(state))

    async def Delete(self, request: Any, context: Any) -> Any:
        resource = _resource(request, request.old_inputs, request.properties)
        await self._answer(context, lambda: self.plugin.delete(resource, request.timeout))
        return empty_pb2.Empty()

    async def Invoke(self, request: Any, context: Any) -> Any:
        arguments = plain_object(request.args)
        found = await self._answer(context, lambda: self.plugin.invoke(request.tok, arguments))
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(wire_object(found))
        return response


def _resource(request: Any, inputs: struct_pb2.Struct, state: struct_pb2.Struct) -> Resource:
    return Resource(request.urn, request.id, plain_object(inputs), plain_object(state))


def _diff_response(diff: Diff, ignored: Iterable[str]) -> provider_pb2.DiffResponse:
    # The engine has already removed these before an update, but not before a refresh.
    found = [change for change in diff.changes if not any(map(change.is_under, ignored))]
    replaces = diff.replaces & {change.path for change in found}
    kinds = {change.path: f"{change.kind}_REPLACE" if change.path in replaces else change.kind for change in found}
    detailed = {
        path: provider_pb2.PropertyDiff(kind=provider_pb2.PropertyDiff.Kind.Value(kind), inputDiff=True)
        for path, kind in kinds.items()
    }
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if detailed else provider_pb2.DiffResponse.DIFF_NONE,
        replaces=_properties(replaces),
        diffs=_properties(detailed),
        deleteBeforeReplace=bool(replaces) and diff.same_name,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


def _properties(paths: Iterable[str]) -> list[str]:
    return sorted({re.split(r"[.\[]", path)[0] for path in paths})

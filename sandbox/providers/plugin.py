"""The plugin side of Pulumi's provider protocol, over plain Python values.

Owns gRPC, the wire format and how errors reach the user; the plugins own what resources do.
`pulumi.provider.experimental` is the base, for components alone: its other calls lose the old inputs,
know no unknown values, and put a traceback into every error message.
"""

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf import any_pb2, empty_pb2, struct_pb2
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse, Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.providers.values import Change, Object, Secret

# https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/properties.go
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"

_MESSAGE_BYTES = 400 * 1024 * 1024
_PARALLEL_CALLS = 64
_ENGINE_CHECK_SECONDS = 1.0


class Refusal(Exception):
    """The cloud's answer to a request it does not grant; shown to the user as it stands."""


class NotReady(Refusal):
    """The object exists but did not become ready; it is kept in the state."""

    def __init__(self, message: str, resource_id: str, state: Object) -> None:
        super().__init__(message)
        self.resource_id = resource_id
        self.state = state


@dataclass(frozen=True)
class Resource:
    """A resource as the engine remembers it."""

    urn: str
    id: str
    inputs: Object
    state: Object

    @property
    def type(self) -> str:
        return type_of(self.urn)


@dataclass(frozen=True)
class Diff:
    """How a resource must change."""

    changes: tuple[Change, ...] = ()
    replaces: frozenset[str] = frozenset()
    """Those paths of `changes` that need a new resource."""
    delete_before_replace: bool = False


class Plugin(ABC):
    """What a plugin does with resources; calls come from several threads at once."""

    def __init__(self, package: str) -> None:
        self.version = version(package)

    @abstractmethod
    def configure(self, config: Object) -> None:
        """Take the provider's configuration."""

    def check_config(self, config: Object) -> Object:
        return config

    def diff_config(self, old: Object, new: Object) -> list[str]:
        """Configuration keys whose change replaces the provider, and so all its resources."""
        del old, new
        return []

    @abstractmethod
    def check(self, urn: str, old: Object, new: Object, seed: bytes) -> Object:
        """The inputs to go on with: `new`, named if it has no name."""

    @abstractmethod
    def diff(self, old: Resource, new: Object) -> Diff: ...

    @abstractmethod
    def create(self, urn: str, inputs: Object, timeout_seconds: float, *, preview: bool) -> tuple[str, Object]:
        """Id (empty in previews) and state of the new resource."""

    @abstractmethod
    def read(self, resource: Resource) -> tuple[Object, Object] | None:
        """Inputs and state as the cloud has them; None when the resource is gone."""

    @abstractmethod
    def update(self, old: Resource, new: Object, timeout_seconds: float, *, preview: bool) -> Object:
        """The state after the update."""

    @abstractmethod
    def delete(self, resource: Resource, timeout_seconds: float) -> None: ...

    def invoke(self, token: str, arguments: Object) -> Object:
        raise Refusal(f"the sandbox has no function {token}({', '.join(arguments)})")

    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        raise Refusal(f"the sandbox has no component {request.resource_type}")


def type_of(urn: str) -> str:
    """The resource type in a URN, without its parents' types."""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    """The program's own name for the resource."""
    return urn.split("::", 3)[3]


def serve(plugin: Plugin) -> None:
    """Serve `plugin` to the engine that started this process, until it ends."""

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_PARALLEL_CALLS))
        limits = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
        server = grpc.aio.server(options=limits)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(_Servicer(plugin, sys.argv[-1]), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)  # noqa: T201 - the engine reads the port from here
        engine = os.getppid()
        while os.getppid() == engine:  # An engine that was killed cannot end its plugins.
            await asyncio.sleep(_ENGINE_CHECK_SECONDS)

    asyncio.run(run())


def plain(value: struct_pb2.Value) -> Any:
    """A value off the wire. Nulls in objects are dropped: to every API here they mean unset."""
    match value.WhichOneof("kind"):
        case "struct_value":
            return _plain_object(value.struct_value)
        case "list_value":
            return [plain(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def wire(value: Any) -> struct_pb2.Value:
    """A value for the wire."""
    match value:
        case Secret(inner):
            signature = struct_pb2.Value(string_value=_SECRET)
            return struct_pb2.Value(
                struct_value=struct_pb2.Struct(fields={_SIGNATURE: signature, "value": wire(inner)})
            )
        case dict():
            return struct_pb2.Value(struct_value=wire_object(cast(Object, value)))
        case list():
            items = [wire(item) for item in cast(list[Any], value)]
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=items))
        case bool():
            return struct_pb2.Value(bool_value=value)
        case int() | float():
            return struct_pb2.Value(number_value=value)
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case _:
            return struct_pb2.Value(string_value=str(value))


def wire_object(value: Object) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields={key: wire(item) for key, item in value.items()})


def plain_object(struct: struct_pb2.Struct) -> Object:
    return {key: item for key, value in struct.fields.items() if (item := plain(value)) is not None}


def _plain_object(struct: struct_pb2.Struct) -> Any:
    if _SIGNATURE in struct.fields and struct.fields[_SIGNATURE].string_value == _SECRET:
        return Secret(plain(struct.fields["value"]))
    return plain_object(struct)


type _Call = Callable[["_Servicer", Any, Any], Coroutine[Any, Any, Any]]


def _answered(call: _Call) -> _Call:
    """Gives a refusal to the engine as the message it is."""

    @wraps(call)
    async def answer(self: "_Servicer", request: Any, context: Any) -> Any:
        try:
            return await call(self, request, context)
        except NotReady as error:
            detail = provider_pb2.ErrorResourceInitFailed(
                id=error.resource_id, properties=wire_object(error.state), reasons=[str(error)]
            )
            packed = any_pb2.Any()
            packed.Pack(detail)
            status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[packed])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except Refusal as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return answer


class _Components(Provider):
    """The one call that the SDK's servicer still makes itself."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    async def construct(self, request: ConstructRequest) -> ConstructResponse:
        return await self._plugin.construct(request)


class _Servicer(ProviderServicer):
    def __init__(self, plugin: Plugin, engine_address: str) -> None:
        super().__init__([], plugin.version, _Components(plugin), engine_address)
        self.plugin = plugin

    @_answered
    async def Construct(self, request: Any, context: Any) -> Any:
        return await self._construct(request, context)

    @_answered
    async def CheckConfig(self, request: Any, context: Any) -> Any:
        inputs = self.plugin.check_config(plain_object(request.news))
        return provider_pb2.CheckResponse(inputs=wire_object(inputs))

    @_answered
    async def DiffConfig(self, request: Any, context: Any) -> Any:
        old, new = plain_object(request.old_inputs), plain_object(request.news)
        some = provider_pb2.DiffResponse.DIFF_SOME if old != new else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, replaces=self.plugin.diff_config(old, new))

    @_answered
    async def Configure(self, request: Any, context: Any) -> Any:
        await asyncio.to_thread(self.plugin.configure, plain_object(request.args))
        # Output values are refused: the SDK cannot read those that are no secret.
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    @_answered
    async def Check(self, request: Any, context: Any) -> Any:
        old, new = plain_object(request.olds), plain_object(request.news)
        inputs = await asyncio.to_thread(self.plugin.check, request.urn, old, new, request.randomSeed)
        return provider_pb2.CheckResponse(inputs=wire_object(inputs))

    @_answered
    async def Diff(self, request: Any, context: Any) -> Any:
        old = Resource(request.urn, request.id, plain_object(request.old_inputs), plain_object(request.olds))
        diff = await asyncio.to_thread(self.plugin.diff, old, plain_object(request.news))
        return _diff_response(diff)

    @_answered
    async def Create(self, request: Any, context: Any) -> Any:
        inputs = plain_object(request.properties)
        created = asyncio.to_thread(self.plugin.create, request.urn, inputs, request.timeout, preview=request.preview)
        resource_id, state = await created
        return provider_pb2.CreateResponse(id=resource_id, properties=wire_object(state))

    @_answered
    async def Read(self, request: Any, context: Any) -> Any:
        inputs, state = plain_object(request.inputs), plain_object(request.properties)
        resource = Resource(request.urn, request.id, inputs, state)
        found = await asyncio.to_thread(self.plugin.read, resource)
        if found is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(id=request.id, inputs=wire_object(found[0]), properties=wire_object(found[1]))

    @_answered
    async def Update(self, request: Any, context: Any) -> Any:
        old = Resource(request.urn, request.id, plain_object(request.old_inputs), plain_object(request.olds))
        new = plain_object(request.news)
        state = await asyncio.to_thread(self.plugin.update, old, new, request.timeout, preview=request.preview)
        return provider_pb2.UpdateResponse(properties=wire_object(state))

    @_answered
    async def Delete(self, request: Any, context: Any) -> Any:
        inputs, state = plain_object(request.old_inputs), plain_object(request.properties)
        await asyncio.to_thread(self.plugin.delete, Resource(request.urn, request.id, inputs, state), request.timeout)
        return empty_pb2.Empty()

    @_answered
    async def Invoke(self, request: Any, context: Any) -> Any:
        result = await asyncio.to_thread(self.plugin.invoke, request.tok, plain_object(request.args))
        return provider_pb2.InvokeResponse(**{"return": wire_object(result)})


def _diff_response(diff: Diff) -> provider_pb2.DiffResponse:
    kinds = provider_pb2.PropertyDiff.Kind
    detailed = {
        change.path: provider_pb2.PropertyDiff(
            kind=kinds.Value(f"{change.kind}_REPLACE" if change.path in diff.replaces else change.kind), inputDiff=True
        )
        for change in diff.changes
    }
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if detailed else provider_pb2.DiffResponse.DIFF_NONE,
        replaces=sorted(diff.replaces),
        diffs=list(detailed),
        deleteBeforeReplace=diff.delete_before_replace,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )

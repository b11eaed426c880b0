"""Runs the Pulumi program against a monitor that keeps every registration, options and all."""

import asyncio
import json
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, override

from pulumi import runtime
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import resource_pb2

from cli import stack_file

ROOT = Path(__file__).parents[2]
DNS_ENDPOINT = "gke-0123456789.us-east5-b.gke.goog"
PROJECT_NUMBER = "123456789012"
BUILT_DIGEST = f"sha256:{'2' * 64}"

type Values = dict[str, Any]


def values_of(path: Path) -> Values:
    """The values of a stack file by section, those of a starter included."""
    return stack_file.sections(stack_file.content(path)["config"])


def stack_values(name: str) -> Values:
    """The values of one of the repository's stacks."""
    return values_of(ROOT / "stacks" / f"Pulumi.{name}.yaml")


def scale_values() -> Values:
    """The values of a stack of 64 slices of 256 chips."""
    return values_of(Path(__file__).parent / "Pulumi.scale.yaml")


@dataclass(frozen=True)
class Registration:
    """One resource as the program registered it."""

    type: str
    name: str
    urn: str
    inputs: Values
    request: Any

    @property
    def waits_for(self) -> list[str]:
        """Resources that must exist while this one does, including the parent."""
        provider = self.request.provider.split("::")[:-1]
        return [*self.request.dependencies, self.request.parent, "::".join(provider)]


@dataclass
class Recording:
    """Everything that one run of the program registered, in order."""

    registrations: list[Registration] = field(default_factory=list[Registration])
    exports: Values = field(default_factory=dict[str, Any])

    def of_type(self, resource_type: str) -> list[Registration]:
        return [registration for registration in self.registrations if registration.type == resource_type]

    def starting(self, resource_type: str, prefix: str) -> list[Registration]:
        return [registration for registration in self.of_type(resource_type) if registration.name.startswith(prefix)]

    def named(self, resource_type: str, name: str) -> Registration:
        (found,) = (registration for registration in self.of_type(resource_type) if registration.name == name)
        return found

    def closure(self, start: Registration) -> set[str]:
        """All resources that `start` waits for, directly or by way of others, as the engine orders them."""
        by_urn = {registration.urn: registration for registration in self.registrations}
        seen: set[str] = set()
        waiting = list(start.waits_for)
        while waiting:
            urn = waiting.pop()
            if urn in by_urn and urn not in seen:
                seen.add(urn)
                waiting += by_urn[urn].waits_for
        return seen


class _Cloud(mocks.Mocks):
    """Echoes inputs; adds the outputs that the program reads, which a first preview cannot know."""

    def __init__(self, *, knows_outputs: bool, buckets: Mapping[str, str], answers: Mapping[str, Values | str]) -> None:
        self._knows_outputs = knows_outputs
        self._buckets = buckets
        self._answers = answers

    @override
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, Values]:
        outputs: Values = {**cast(Values, args.inputs)}  # pyright: ignore[reportUnknownMemberType]
        if self._knows_outputs and args.typ == "gcp:serviceaccount/account:Account":
            outputs["email"] = f"{outputs['accountId']}@my-project.iam.gserviceaccount.com"
        if self._knows_outputs and args.typ == "gcp:artifactregistry/repository:Repository":
            outputs["registryUri"] = f"{outputs['location']}-docker.pkg.dev/my-project/{outputs['repositoryId']}"
        if self._knows_outputs and args.typ == "docker-build:index:Image":
            outputs["digest"] = BUILT_DIGEST
        if self._knows_outputs and args.typ == "gcp:container/cluster:Cluster":
            outputs["controlPlaneEndpointsConfig"] = {"dnsEndpointConfig": {"endpoint": DNS_ENDPOINT}}
        elif args.typ == "gcp:container/cluster:Cluster":
            del outputs["controlPlaneEndpointsConfig"]
        return f"{args.name}-id", outputs

    @override
    def call(self, args: mocks.MockCallArgs) -> tuple[Values, list[tuple[str, str]]]:
        if args.token == "gcp:storage/getBucket:getBucket" and args.args["name"] not in self._buckets:
            return {}, [("name", "googleapi: Error 404: The specified bucket does not exist., notFound")]
        answers: dict[str, Values | str] = {
            "gcp:storage/getBucket:getBucket": {"location": self._buckets.get(args.args.get("name", ""))},
            "gcp:organizations/getProject:getProject": {"number": PROJECT_NUMBER},
            "pulumi:pulumi:readStackOutputs": {"outputs": {}},
            **self._answers,
        }
        answer = answers[args.token]
        return ({}, [("", answer)]) if isinstance(answer, str) else (answer, [])


class _Monitor(mocks.MockMonitor):
    """Keeps the requests: mocks alone never see a resource's options."""

    def __init__(self, cloud: _Cloud, recording: Recording) -> None:
        super().__init__(cloud)
        self._recording = recording

    @override
    def RegisterResource(self, request: Any) -> resource_pb2.RegisterResourceResponse:
        response = cast(Any, super()).RegisterResource(request)
        inputs = _whole(rpc.deserialize_properties(request.object))
        # The first run of a process registers the stack itself as well.
        if request.type != "pulumi:pulumi:Stack":
            found = Registration(request.type, request.name, response.urn, inputs, request)
            self._recording.registrations.append(found)
        return response


def run_program(
    values: Mapping[str, Any],
    *,
    preview: bool = False,
    secret: Sequence[str] = (),
    buckets: Mapping[str, str] = MappingProxyType({}),
    answers: Mapping[str, Values | str] = MappingProxyType({}),
) -> Recording:
    """The registrations of `__main__.py` under a stack file with these values.

    `preview` is that of a new stack; of the sections `secret` some part is secret, as in Pulumi; `buckets` exist:
    their locations by name. `answers` are what further functions of Google Cloud answer, by token: text is a refusal.
    """
    # Pulumi takes the thread's event loop; whoever called asyncio.run before has left none.
    asyncio.set_event_loop(asyncio.new_event_loop())
    recording = Recording()
    cloud = _Cloud(knows_outputs=not preview, buckets=buckets, answers=answers)
    runtime.set_mocks(cloud, "tpu-multislice", "test", preview, monitor=_Monitor(cloud, recording))
    config = {f"tpu-multislice:{section}": json.dumps(value) for section, value in values.items()}
    runtime.set_all_config(config, [f"tpu-multislice:{section}" for section in secret])
    as_test = cast(Callable[[Callable[[], object]], Callable[[], None]], cast(Any, mocks).test)
    as_test(lambda: runpy.run_path(str(ROOT / "__main__.py")) and None)()
    stack = cast(Any, runtime.get_root_resource())
    # The stack is the process's, and knows what earlier programs exported.
    recording.exports |= stack.outputs
    stack.outputs = {}
    return recording


def _whole(value: Any) -> Any:
    """Pulumi carries every number as a float; whole ones read better without the point."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in cast(Values, value).items()}
    if isinstance(value, list):
        return [_whole(item) for item in cast(list[Any], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value

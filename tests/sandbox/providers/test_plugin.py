import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from sandbox.providers.values import wire_object
from sandbox.site import SITE_VARIABLE, create
from tests.checkout import ROOT

URN = "urn:pulumi:dev::project::gcp:compute/network:Network::net"


def start(site: Path) -> subprocess.Popen[str]:
    environment = os.environ | {SITE_VARIABLE: str(create(site).root), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sandbox.providers.gcp", "127.0.0.1:1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def stub(tmp_path: Path) -> Generator[Any]:
    """The gcp plugin as the engine sees it."""
    process = start(tmp_path)
    assert process.stdout is not None
    with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    process.terminate()
    process.wait()


def test_the_engine_gets_states_and_detailed_diffs(stub: Any) -> None:
    stub.Configure(provider_pb2.ConfigureRequest(args=wire_object({"project": "p"})))
    inputs = {"name": "net", "mtu": 1460}
    created = stub.Create(provider_pb2.CreateRequest(urn=URN, properties=wire_object(inputs)))
    assert created.id == "projects/p/global/networks/net"
    request = provider_pb2.DiffRequest(
        urn=URN,
        id=created.id,
        olds=created.properties,
        old_inputs=wire_object(inputs),
        news=wire_object({"name": "new", "mtu": 8896, "routingMode": "GLOBAL"}),
        ignoreChanges=["routingMode"],
    )
    diff = stub.Diff(request)
    kinds = {path: provider_pb2.PropertyDiff.Kind.Name(change.kind) for path, change in diff.detailedDiff.items()}
    assert kinds == {"name": "UPDATE_REPLACE", "mtu": "UPDATE"}
    assert list(diff.replaces) == ["name"]
    assert not diff.deleteBeforeReplace


def test_a_refusal_reaches_the_engine_as_the_bare_message(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Create(provider_pb2.CreateRequest(urn=URN, properties=wire_object({"name": "net"})))
    assert caught.value.details() == "project: required field is not set"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_plugin_ends_with_the_engine_that_started_it(tmp_path: Path) -> None:
    script = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); p.stdout.readline()"
    environment = os.environ | {SITE_VARIABLE: str(create(tmp_path).root), "PYTHONPATH": str(ROOT)}
    plugin = [sys.executable, "-m", "sandbox.providers.gcp", "127.0.0.1:1"]
    engine = [sys.executable, "-c", script, *plugin]
    # The plugin holds this pipe open as its stderr: reading ends only when the plugin has ended too.
    ended = subprocess.run(engine, stderr=subprocess.PIPE, env=environment, timeout=30, check=False)
    assert ended.returncode == 0

"""The stack of calls: from Pulumi, or from the record in a namespace of the kubeconfig's current context."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from infra.stack.names import PUBLISHED, PUBLISHED_KEY
from multislice import NoSuchStack
from multislice.connection import connect
from tests.cli.api_server import Played, playing
from tests.cli.rehearse.clusters import kubeconfig
from tests.multislice.known import settings

_IN_A_NEW_PROCESS = """
from multislice.connection import gcs
from sandbox import engine
gcs(token="anon")
"""
RECORDS = "/api/v1/namespaces/research/configmaps"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Played]:
    """A cluster in the kubeconfig, for a user without Pulumi and without a bucket."""
    played = Played()
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, played, "research"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("multislice.connection.gcs", dict)
    data = {PUBLISHED_KEY: settings(product="product").text}
    played.collections[RECORDS] = [{"metadata": {"name": PUBLISHED, "uid": "1"}, "data": data}]
    with playing(played):
        yield played


def test_without_pulumi_it_is_the_stack_of_the_current_context_and_the_only_team(server: Played) -> None:
    found = connect("local", None)
    assert (found.stack, found.team(None), [*found.settings.slices]) == ("local", "research", ["trillium"])
    assert found.url("research", "train-1").startswith("gs://sandbox-local-checkpoints/teams/research/calls/")


def test_another_stack_or_one_without_a_record_is_not_taken_for_it(server: Played) -> None:
    with pytest.raises(NoSuchStack, match="stack prod cannot be read"):
        connect("prod", None)
    server.collections[RECORDS] = [{"metadata": {"name": "other", "uid": "2"}}]
    with pytest.raises(NoSuchStack, match="stack local cannot be read"):
        connect("local", None)


def test_a_record_that_cannot_be_read_is_reported_as_such(server: Played) -> None:
    server.collections[RECORDS][0]["data"] = {PUBLISHED_KEY: '{"version": "99.0"}'}
    with pytest.raises(NoSuchStack, match="got version 99.0; "):
        connect("local", None)


@pytest.mark.costs(cpu_seconds=8)
def test_a_process_reads_a_stack_of_the_sandbox_and_then_its_bucket() -> None:
    """Both need libraries of which each defines the same message of a protocol."""
    subprocess.run([sys.executable, "-c", _IN_A_NEW_PROCESS], check=True)

"""`pulumi destroy`, the command that a user types: with a cluster, without one, and with a stack that is half made."""

import io
import random

import psutil
import pytest
from pulumi.automation import CommandError, EngineEvent
from rich.console import Console

from cli.down import Consent, down
from sandbox import daemon
from tests.chain.stack import Chain, ignore
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete


def _held() -> Values:
    values = stack_values("local")
    values["teams"]["research"]["admission"] = "hold"
    return values


def _destroy(chain: Chain) -> None:
    ended = chain.pulumi("destroy", "--yes", "--stack", "local")
    assert not ended.returncode, ended.stdout + ended.stderr


def test_pulumi_destroy_leaves_the_bucket_alone_and_the_next_up_adopts_it(chain: Chain):
    engine = chain.engine_on(_held())
    for _ in range(2):
        engine.up(ignore)
        _destroy(chain)
        assert engine.resources() == []
        assert [record.name.partition("-")[0] for record in chain.site.cloud.iterdir()] == ["storage.Bucket"]


def test_a_cluster_that_is_gone_does_not_block_destroy(chain: Chain, monkeypatch: pytest.MonkeyPatch):
    engine = chain.engine_on(_held())
    engine.up(ignore)
    daemon.stop(chain.site)
    for record in [*chain.site.cloud.glob("container.*")]:
        record.unlink()
    refused = chain.pulumi("destroy", "--yes", "--stack", "local")
    assert refused.returncode
    assert "PULUMI_K8S_DELETE_UNREACHABLE" in refused.stdout + refused.stderr
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    _destroy(chain)
    assert engine.resources() == []


class Killer:
    """Kills the engine, as a power cut does, when it begins its n-th operation."""

    def __init__(self, operation: int) -> None:
        self._left = operation

    def __call__(self, event: EngineEvent) -> None:
        told = event.resource_pre_event
        if told and told.metadata.op.value in ("create", "delete"):
            self._left -= 1
            if not self._left:
                for child in psutil.Process().children():
                    if child.name() == "pulumi":
                        child.kill()


@pytest.mark.parametrize("seed", range(3))
def test_down_goes_on_from_wherever_an_engine_was_killed(chain: Chain, seed: int):
    drawn = random.Random(seed)  # noqa: S311
    values = _held()
    engine, file, console = chain.engine_on(values), chain.written(values), Console(file=io.StringIO())
    with pytest.raises(CommandError):
        engine.up(Killer(drawn.randint(1, 90)))
    assert down(file, chain.site.root, Consent(), console) == 0
    assert engine.resources() == []
    daemon.start(chain.site, ignore)
    engine.up(ignore)
    with pytest.raises(CommandError):
        engine.destroy(Killer(drawn.randint(1, 12)))
    assert down(file, chain.site.root, Consent(), console) == 0
    assert engine.resources() == []
    assert {record.name.partition("-")[0] for record in chain.site.cloud.iterdir()} <= {"storage.Bucket"}
    daemon.start(chain.site, ignore)

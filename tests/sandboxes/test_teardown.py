"""`pulumi destroy`, the command that a user types: with a cluster, without one, and with a stack that is half made."""

import io
import random
import shutil
from collections.abc import Callable

import psutil
import pytest
import yaml
from pulumi.automation import CommandError, EngineEvent
from rich.console import Console

from cli.down import Consent, down
from infra.stack.names import NO_FOREIGN, NO_JOB_RUNS
from sandbox import daemon
from sandbox.engine import BINDINGS, Engine
from tests.chain.stack import Chain, Operations, ignore
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
    # A cluster that is gone has no objects, and neither has the next one.
    shutil.rmtree(chain.site.root / "etcd")
    daemon.start(chain.site, ignore)


FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "tutorial"}}


def test_a_destroy_that_is_refused_leaves_the_guard_of_running_jobs_as_it_was(chain: Chain):
    engine = chain.engine_on(_held())
    engine.up(ignore)
    chain.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(FLAVOR))
    with pytest.raises(CommandError, match="tutorial was not made by this stack"):
        engine.destroy(ignore, agreed=[NO_JOB_RUNS])
    binding = chain.api.request("GET", f"{BINDINGS}/{NO_JOB_RUNS}-research")
    assert binding["spec"]["validationActions"] == ["Deny"]
    engine.destroy(ignore, agreed=[NO_JOB_RUNS, *NO_FOREIGN])
    _require_nothing_left(chain, engine)


class Killer:
    """Kills the engine, as a power cut does, when it begins its n-th operation."""

    def __init__(self, operation: int) -> None:
        self._left = operation

    @property
    def struck(self) -> bool:
        return self._left <= 0

    def __call__(self, event: EngineEvent) -> None:
        told = event.resource_pre_event
        if told and told.metadata.op.value in ("create", "delete"):
            self._left -= 1
            if not self._left:
                for child in psutil.Process().children():
                    if child.name() == "pulumi":
                        child.kill()


def _killed(operation: Callable[[Killer], object], killer: Killer) -> bool:
    """Whether the engine was killed before it had finished."""
    try:
        operation(killer)
    except CommandError:
        if not killer.struck:
            raise
        return True
    return False


@pytest.mark.parametrize("seed", range(2))
def test_up_and_down_go_on_from_wherever_an_engine_was_killed(chain: Chain, seed: int):
    drawn = random.Random(seed)  # noqa: S311
    values = _held()
    engine, operations = chain.engine_on(values), Operations()
    while _killed(engine.up, Killer(drawn.randint(1, 40))):
        engine.recover()
    engine.up(operations)
    assert operations.changes == set()
    for _ in range(3):
        if _killed(engine.destroy, Killer(drawn.randint(1, 150))):
            engine.recover()
    engine.destroy(ignore)
    _require_nothing_left(chain, engine)


def test_down_removes_what_a_killed_up_had_made(chain: Chain):
    values = _held()
    engine, file = chain.engine_on(values), chain.written(values)
    assert _killed(engine.up, Killer(60))
    assert down(file, chain.site.root, Consent(), Console(file=io.StringIO())) == 0
    _require_nothing_left(chain, engine)
    daemon.start(chain.site, ignore)


def _require_nothing_left(chain: Chain, engine: Engine) -> None:
    assert engine.resources() == []
    assert {record.name.partition("-")[0] for record in chain.site.cloud.iterdir()} <= {"storage.Bucket"}

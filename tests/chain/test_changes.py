"""Changes to a stack on the real engine: what is touched, in which order, and what is refused.

Nothing but the job under guard trains here: the queue is held, so that jobs wait and cost no time.
"""

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pulumi.automation import CommandError, EngineEvent

from cli.explain.finding import Cause
from infra.cluster.running_jobs import holders
from infra.stack.settings.read import parse
from tests.chain.commands import answered
from tests.chain.rivals import rival
from tests.chain.shared import held
from tests.chain.stack import Chain, Operations, ignore, reviews, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

DIGEST = "trainer@sha256:" + "1" * 64
SPOT = "spot"
COMPILES = """
import jax
jax.monitoring.register_event_listener(lambda event, **_: print(event))
jax.jit(lambda x: 2 * x)(1.0)
"""

type Edit = Callable[[Any], object]


def _changed(values: Values, *edits: Edit) -> Values:
    changed = copy.deepcopy(values)
    for edit in edits:
        edit(changed)
    return changed


def _touched(operations: Operations, operation: str) -> set[str]:
    return {name for told, name in operations.changes if told == operation}


def _applied(chain: Chain, values: Values) -> Operations:
    """Preview, up, preview: what was announced is what happened, and nothing is left to do."""
    announced, happened, left = Operations(), Operations(), Operations()
    chain.engine_on(values).preview(announced)
    chain.engine_on(values).up(happened)
    chain.engine_on(values).preview(left)
    assert happened.changes == announced.changes
    assert left.changes == set()
    return happened


@pytest.fixture(scope="module")
def running(chain: Chain) -> Values:
    """A job that trains until it is stopped, with a checkpoint."""
    values: Any = stack_values("local")
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["job"] |= {"name": "guarded", "existing_run": "new", "training": training, "compile_cache": "bucket"}
    chain.engine_on(values).up(ignore)
    chain.wait_for_step("guarded", 8)
    return values


@pytest.fixture
def untouched(chain: Chain, running: Values) -> Generator[None]:
    """Nodes and pods are the same after the test."""
    del running

    def identities() -> set[str]:
        every = [*chain.objects("nodes"), *chain.objects("pods", "jobset.sigs.k8s.io/jobset-name")]
        return {found["metadata"]["uid"] for found in every}

    before = identities()
    yield
    assert identities() == before


@pytest.mark.usefixtures("untouched")
class TestUnderARunningJob:
    """The guard."""

    def test_the_cluster_is_not_replaced_even_if_agreed(self, chain: Chain, running: Values):
        moved = _changed(running | {"allow_interruption": True}, _set("network", pods="10.32.0.0/12"))
        with pytest.raises(CommandError) as refused:
            chain.engine_on(moved).up(ignore)
        assert "needs a new cluster" in str(refused.value)
        assert "network.pods: 10.16.0.0/12 -> 10.32.0.0/12" in str(refused.value)

    def test_a_preview_tells_the_difference_and_knows_the_queue(self, chain: Chain, running: Values):
        events: list[EngineEvent] = []
        chain.engine_on(_changed(running, _of_group(count=3))).preview(events.append)
        (told,) = reviews(events)
        assert "+$21.60 an hour (+$518.40 a day) compared with what is deployed" in " ".join(told.split())
        assert "Queue    runs already" in told
        assert "simulated" not in told

    def test_what_was_compiled_is_in_the_bucket_for_the_next_start(self, chain: Chain, running: Values):
        (job,) = (job for job in chain.objects("jobsets") if job["metadata"]["name"] == "guarded")
        (container,) = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        (cache,) = (each["value"] for each in container["env"] if each["name"] == "JAX_COMPILATION_CACHE_DIR")
        assert cache.startswith(f"gs://{parse(running).checkpoint_bucket}/")
        # Trainers of the sandbox, which have several CPU devices each, keep none.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        at_once = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        one_device = {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": cache, **at_once}
        environment = inherited | chain.site.storage.environment | one_device
        starts = [subprocess.check_output([sys.executable, "-c", COMPILES], env=environment) for _ in range(2)]
        assert [b"/cache_hits" in start for start in starts] == [False, True]


def test_an_evicted_job_is_explained_by_what_preempted_it(chain: Chain, running: Values):
    del running

    def preempted() -> list[dict[str, Any]]:
        findings = answered(chain, "explain", "guarded")["findings"]
        return [finding for finding in findings if finding["cause"] == Cause.PREEMPTED]

    with rival(chain, "guarded"):
        wait_until(lambda: bool(preempted()), lambda: str(answered(chain, "explain", "guarded")))
        (found,) = preempted()
    assert "because it has a higher priority in the same queue" in found["what"]
    assert "raise its `priority` in the stack file of local" in found["next"][-1]
    chain.wait_for_step("guarded", max(chain.losses("guarded")) + 2)


def test_an_agreed_change_ends_the_job_while_it_still_has_its_slices(chain: Chain):
    values = held(name="guarded")
    values["slices"]["trillium"]["capacity"] = SPOT
    values["allow_interruption"] = True
    operations = Operations()
    chain.engine_on(values).up(operations)
    job_gone = operations.ended.index(("delete-replaced", "job-guarded"))
    assert job_gone < operations.begun.index(("delete-replaced", "slices-trillium-0"))
    ended = [name for operation, name in operations.ended if operation == "create-replacement"]
    assert ended[-1] == "job-guarded"
    assert chain.objects("pods", "jobset.sigs.k8s.io/jobset-name") == []


class TestOnlyWhatMustChangeIsTouched:
    """Each change goes from where the one before it ended."""

    def test_a_slice_more_is_a_pool_a_quota_and_the_job(self, chain: Chain):
        chain.engine_on(held()).up(ignore)
        operations = Operations()
        chain.engine_on(_changed(held(), _three_slices)).up(operations)
        assert _touched(operations, "create") == {"slices-trillium-2"}
        updated = {"bounds-research", "slice-dependencies", "quota-research", "price-held", "published-research"}
        assert _touched(operations, "update") == updated
        assert _touched(operations, "replace") == {"job-held"}

    def test_a_changed_image_replaces_the_job_alone(self, chain: Chain):
        operations = Operations()
        chain.engine_on(_changed(held(), _three_slices, _other_image)).up(operations)
        assert {name for _, name in operations.changes} == {"job-held", "published-research"}
        assert _touched(operations, "replace") == {"job-held"}

    def test_a_changed_label_updates_in_place(self, chain: Chain):
        operations = Operations()
        chain.engine_on(_changed(held(), _three_slices, _other_image, _labelled)).up(operations)
        assert {operation for operation, _ in operations.changes} == {"update"}
        pools = {f"slices-trillium-{index}" for index in range(3)}
        assert _touched(operations, "update") == {"cluster", "cluster-system", "checkpoints", "images", *pools}

    def test_a_changed_topology_replaces_pools_and_job_in_the_order_that_works(self, chain: Chain):
        operations = Operations()
        chain.engine_on(_changed(held(), _larger_slices, _other_image, _labelled)).up(operations)
        pools = ["slices-trillium-0", "slices-trillium-1"]
        replacing = [
            (operation, name)
            for operation, name in operations.ended
            if name in ("job-held", *pools) and operation in ("delete-replaced", "create-replacement")
        ]
        assert replacing[0] == ("delete-replaced", "job-held")
        assert set(replacing[1:-1]) == {
            (part, pool) for part in ("delete-replaced", "create-replacement") for pool in pools
        }
        assert replacing[-1] == ("create-replacement", "job-held")
        # Kueue lets go of the old flavor only when no queue names it.
        ended = operations.ended
        assert ended.index(("create-replacement", "flavor-trillium")) < ended.index(("update", "quota-research"))
        assert ended.index(("update", "quota-research")) < ended.index(("delete-replaced", "flavor-trillium"))
        assert len(chain.objects("nodes", "cloud.google.com/gke-tpu-topology=4x4")) == 8
        assert chain.objects("nodes", "cloud.google.com/gke-tpu-topology=2x4") == []


def _three_slices(values: Any) -> None:
    values["slices"]["trillium"]["count"] = values["job"]["slices"]["count"] = 3
    values["teams"]["research"]["quota"]["trillium"] = 24
    values["job"]["training"] = {"global_batch": 48}


def _larger_slices(values: Any) -> None:
    values["slices"]["trillium"]["topology"] = "4x4"
    values["teams"]["research"]["quota"]["trillium"] = 32


def _other_image(values: Any) -> None:
    values["image"]["reference"] = DIGEST


def _labelled(values: Any) -> None:
    values["labels"] = {"cost-center": "research"}


def _set(section: str, **values: object) -> Edit:
    return lambda whole: whole.setdefault(section, {}).update(values)


def _of_group(**values: object) -> Edit:
    return lambda whole: whole["slices"]["trillium"].update(values)


def _of_team(**values: object) -> Edit:
    return lambda whole: whole["teams"]["research"].update(values)


def _another_group(whole: Any) -> None:
    whole["slices"]["lite"] = {"generation": "v5e", "topology": "4x4", "count": 1, "capacity": "spot"}
    whole["teams"]["research"]["quota"]["lite"] = 16


def _another_team(whole: Any) -> None:
    whole["teams"]["product"] = {"namespace": "product", "quota": {"trillium": 0}}


_EDITS: list[Edit] = [
    _three_slices,
    _of_group(capacity=SPOT),
    _of_group(boot_disk_gb=150),
    _of_team(preemption={"within_team": "never"}),
    _set("job", priority="high"),
    _set("job", max_restarts=9),
    _set("job", max_hours=4),
    _set("scheduling", ready_minutes=20),
    _other_image,
    _labelled,
    _larger_slices,
    _another_group,
    _another_team,
]


@hypothesis_settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=st.lists(st.sampled_from(_EDITS), min_size=2, max_size=5, unique=True))
def test_what_a_preview_announces_is_what_happens_whatever_the_change(chain: Chain, edits: list[Edit]):
    """Each example goes from where the one before it ended."""
    _applied(chain, _changed(held(), *edits))


def test_who_holds_an_object_that_is_not_going_away_is_told(chain: Chain):
    chain.kubectl("create", "namespace", "held")
    chain.kubectl("create", "configmap", "kept", "-n", "held")
    patch = ("patch", "configmap", "kept", "-n", "held", "--type=merge", "-p")
    chain.kubectl(*patch, '{"metadata": {"finalizers": ["example.com/kept"]}}')
    chain.kubectl("delete", "namespace", "held", "--wait=false")
    api = chain.api
    try:
        wait_until(lambda: any("example.com/kept" in told for told in holders(api, "Namespace", "held")), str)
    finally:
        chain.kubectl(*patch, '{"metadata": {"finalizers": null}}')
    (flavor, *_) = [found["metadata"]["name"] for found in chain.objects("resourceflavors")]
    told = "ClusterQueue research (finalizers kueue.x-k8s.io/resource-in-use) names it"
    assert told in list(holders(api, "ResourceFlavor", flavor))
    assert list(holders(api, "ClusterQueue", "research")) == []

"""What a change and a destroy must not take away."""

from typing import Any

import pytest

from infra.guard import Loss, destroy_policies, loss, slice_dependencies
from infra.stack.command_lines import MAKE_VARIABLE
from infra.stack.manifests import OURS
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, NO_FOREIGN, NO_JOB_RUNS
from infra.stack.settings.read import parse
from tests.infra.recording import Recording, Values, stack_values
from tests.infra.spoiling import edited

RESERVED = {"kind": "reservation", "name": "chips"}


def _loss(before: Values, after: Values) -> Loss:
    return loss(slice_dependencies(parse(before)), slice_dependencies(parse(after)))


def _edited(path: str, value: object) -> Values:
    return edited(stack_values("local"), {path: value})


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("slices.trillium.capacity", RESERVED, "slices.trillium.capacity.kind: on-demand -> reservation"),
        ("slices.trillium.capacity", RESERVED, "slices.trillium.capacity.name: not set -> chips"),
        ("slices.trillium.boot_disk_gb", 200, "slices.trillium.boot_disk_gb: 100 -> 200"),
        ("slices.trillium.zone", "us-east5-a", "slices.trillium.zone: not set -> us-east5-a"),
    ],
)
def test_a_changed_slice_group_takes_all_its_pools_away(path: str, value: object, reason: str) -> None:
    loss = _loss(stack_values("local"), _edited(path, value))
    assert reason in loss.reasons
    assert loss.pools == ("trillium-0", "trillium-1")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("cluster.name", "other", "cluster.name: local -> other"),
        ("cloud.zone", "us-east5-c", "cloud.zone: us-east5-b -> us-east5-c"),
        ("network.pods", "10.32.0.0/12", "network.pods: 10.16.0.0/12 -> 10.32.0.0/12"),
        ("network.nodes", "10.3.0.0/18", "network.nodes: 10.0.0.0/18 -> 10.3.0.0/18"),
        ("network.nodes", "10.0.0.0/19", "network.nodes: 10.0.0.0/18 -> 10.0.0.0/19"),
    ],
)
def test_a_moved_cluster_takes_everything_away(path: str, value: object, reason: str) -> None:
    assert _loss(stack_values("local"), _edited(path, value)) == Loss((reason,), None)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("network.nodes", "10.0.0.0/17"),
        ("labels", {"cost-center": "research"}),
        ("cluster.release_channel", "STABLE"),
        ("job.priority", "high"),
        ("slices.trillium.count", 3),
        ("slices.trillium.zone", "us-east5-b"),
        ("slices.other", {"generation": "v5e", "topology": "4x4", "count": 1, "capacity": "spot"}),
    ],
)
def test_a_change_that_leaves_the_slices_alone_takes_nothing_away(path: str, value: object) -> None:
    values = _edited(path, value)
    values["teams"]["research"]["quota"] |= {"other": 0} if "other" in values["slices"] else {}
    assert _loss(stack_values("local"), values) == Loss((), ())


def test_a_removed_slice_is_named() -> None:
    fewer = _edited("slices.trillium.count", 1)
    fewer["job"]["slices"]["count"] = 1
    fewer["teams"]["research"]["quota"]["trillium"] = 8
    assert _loss(stack_values("local"), fewer) == Loss(("node pool trillium-1 is removed",), ("trillium-1",))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({}, {"teams.research.namespace": "lab"}, "teams.research.namespace: research -> lab"),
        ({"datasets": {"bucket": "tokens"}}, {}, "datasets.bucket: tokens -> not set"),
        ({"datasets": {"bucket": "text-a"}}, {"datasets": {"bucket": "text-b"}}, "datasets.bucket: text-a -> text-b"),
        (
            {"datasets": {"bucket": "text-a", "mount": True}},
            {"datasets": {"bucket": "text-a"}},
            "datasets.mount: True -> not set",
        ),
        ({"job.host_network": True}, {}, "teams.research.pods on the network of their host: allowed -> not set"),
    ],
)
def test_what_running_jobs_of_a_team_need_is_not_taken_away(before: Values, after: Values, reason: str) -> None:
    old, new = edited(stack_values("local"), before), edited(stack_values("local"), after)
    assert _loss(old, new) == Loss((reason,), (), ("research",))
    # What is added takes nothing away.
    if "research -> lab" not in reason and "-> text-b" not in reason:
        assert _loss(new, old) == Loss((), ())


def test_a_removed_or_renamed_team_takes_its_namespace_and_its_quota_away() -> None:
    both, renamed = stack_values("local"), stack_values("local")
    for values, name in ((both, "product"), (renamed, "goods")):
        values["teams"][name] = {"namespace": "product-ml", "quota": {"trillium": 0}}
    quota = (("product", "v6e-2x4-on-demand-trillium"),)
    expected = Loss(("team product is removed",), (), ("product-ml",), quota)
    assert _loss(both, stack_values("local")) == _loss(both, renamed) == expected
    assert _loss(stack_values("local"), both) == Loss((), ())


def test_a_flavor_that_a_queue_loses_leaves_chips_that_no_queue_counts() -> None:
    old = stack_values("local")
    moved = _edited("scheduling.placement", "topology-aware")
    flavors = ("v6e-2x4-on-demand-trillium", "v6e-2x4-tas-on-demand-trillium")
    reason = f"teams.research.quota.trillium: {flavors[0]} -> {flavors[1]}"
    assert _loss(old, moved) == Loss((reason,), (), (), (("research", flavors[0]),))


def test_controllers_that_the_stack_installed_are_not_taken_away() -> None:
    old, new = stack_values("dev"), stack_values("dev")
    for values, how in ((old, "install"), (new, "found")):
        existing = {"name": "shared", "location": values["cloud"]["region"], "jobset": "found", "kueue": how}
        values["cluster"] = {"name": "research", "existing": existing}
    assert _loss(old, new) == Loss(("cluster.existing.kueue: install -> not set",), (), ("research",))
    assert _loss(new, old) == Loss((), ())


STASH = "pulumi:index:Stash"
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


def test_the_job_goes_with_its_slices_marker_ahead_of_the_slices(program: Recording, two_teams: Values) -> None:
    group = two_teams["job"]["slices"]["group"]
    stash, job = program.named(STASH, f"marker-{group}"), program.named(*JOB)
    assert list(job.request.replace_with) == [stash.urn]
    assert (list(stash.request.replaceOnChanges), stash.request.deleteBeforeReplace) == (["input"], True)
    for pool in program.of_type("gcp:container/nodePool:NodePool"):
        assert (stash.urn in program.closure(pool)) == (pool.name != "cluster-system")
    # The engine deletes the job with a provider that it must have by then.
    assert program.named("pulumi:providers:kubernetes", "kubernetes").urn in program.closure(stash)


def test_jobs_are_asked_for_before_anything_is_changed(program: Recording) -> None:
    first = program.named(STASH, "slice-dependencies")
    assert list(first.request.hooks.before_update) == ["refuse-loss-of-running-jobs"]
    assert program.named(STASH, "expiry").urn in program.closure(first)
    for found in program.registrations:
        if found.name not in {"google", "slice-dependencies", "expiry", "placeholders"}:
            assert first.urn in program.closure(found), found.name


CLUSTER = ("gcp:container/cluster:Cluster", "cluster")
MARK = ("kubernetes:core/v1:ConfigMap", "in-use")
DELETED = ("in-use", "job-")
"""Objects in the cluster that a destroy deletes one by one, by the beginning of their names."""


def test_the_mark_goes_before_everything_else(program: Recording) -> None:
    before = program.closure(program.named(*MARK))
    for found in program.registrations:
        assert found.name in {"google", "in-use"} or found.urn in before, found.name


def test_the_stacks_own_queues_flavors_and_namespaces_are_not_foreign(program: Recording) -> None:
    for _, kind in NO_FOREIGN.values():
        declared = [found for found in program.registrations if found.type.endswith(f":{kind}")]
        metadata = [found.inputs["metadata"] for found in declared]
        ours = {each["name"] for each in metadata if OURS.items() <= each.get("annotations", {}).items()}
        assert {each["name"] for each in metadata} - {KUEUE_NAMESPACE, JOBSET_NAMESPACE} == ours != set(), kind


def test_what_the_cluster_says_about_running_jobs_is_the_same_whoever_ran_up(
    two_teams: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAKE_VARIABLE, "dev")
    rendered: Any = destroy_policies(parse(two_teams), "dev")
    (rule,) = rendered[NO_JOB_RUNS]["spec"]["validations"]
    assert "run `multislice up -s dev`, or delete it: kubectl delete jobset" in rule["messageExpression"]


def test_all_in_the_cluster_but_marks_and_jobs_goes_with_it(program: Recording) -> None:
    cluster = program.named(*CLUSTER).urn
    by_urn = {found.urn: found for found in program.registrations}
    for found in program.registrations:
        if found.type.startswith("kubernetes:") and not found.name.startswith(DELETED):
            owner = found
            while not owner.request.deletedWith and owner.request.parent in by_urn:
                owner = by_urn[owner.request.parent]
            assert owner.request.deletedWith == cluster, found.name
        elif found.name.startswith(DELETED):
            assert not found.request.deletedWith, found.name


@pytest.mark.parametrize(("agreed", "action"), [(False, "Deny"), (True, "Warn")])
def test_who_agrees_to_an_interruption_is_only_warned(two_teams: Values, agreed: bool, action: str) -> None:
    rendered: Any = destroy_policies(parse({**two_teams, "allow_interruption": agreed}), "dev")
    bindings = [item for name, item in rendered.items() if name.endswith("-binding")]
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {(action,)}

"""What a change and a destroy must not take away."""

from typing import Any

import pytest

from infra.guard import destroy_policies
from infra.stack.command_lines import MAKE_VARIABLE
from infra.stack.manifests import OURS
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, NO_FOREIGN, NO_JOB_RUNS
from infra.stack.settings.read import parse
from tests.infra.recording import Recording, Values

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

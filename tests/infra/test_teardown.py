"""What a destroy deletes first, and what goes with the cluster."""

from typing import Any

import pytest

from infra.guard import destroy_policies
from infra.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, NO_FOREIGN, NO_JOB_RUNS
from infra.objects import OURS
from infra.settings.read import parse
from tests.infra.recording import Recording, Values, run_program, stack_values

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
        names = {found.inputs["metadata"]["name"] for found in declared} - {KUEUE_NAMESPACE, JOBSET_NAMESPACE}
        ours = {found.inputs["metadata"]["name"] for found in declared if _annotated(found.inputs)}
        assert names == ours != set(), kind


def _annotated(manifest: Values) -> bool:
    return OURS.items() <= manifest["metadata"].get("annotations", {}).items()


def test_jobs_of_every_team_and_of_none_are_looked_for(two_teams: Values) -> None:
    rendered: Any = destroy_policies(parse(two_teams))
    bindings = [item["spec"] for item in rendered.values() if item["spec"].get("policyName") == NO_JOB_RUNS]
    looked_in = {spec["paramRef"]["namespace"] for spec in bindings}
    assert looked_in == {"default", *(team["namespace"] for team in two_teams["teams"].values())}


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


def test_a_protected_cluster_protects_what_a_destroy_deletes_first() -> None:
    for stack, protects in (("local", False), ("prod", True)):
        program = run_program(stack_values(stack))
        assert program.named(*MARK).request.protect is protects


@pytest.mark.parametrize(("agreed", "action"), [(False, "Deny"), (True, "Warn")])
def test_who_agrees_to_an_interruption_is_only_warned(two_teams: Values, agreed: bool, action: str) -> None:
    rendered: Any = destroy_policies(parse({**two_teams, "allow_interruption": agreed}))
    bindings = [item for name, item in rendered.items() if name.endswith("-binding")]
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {(action,)}

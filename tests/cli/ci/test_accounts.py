"""What each account of the workflows may do, against what Google's roles grant and what the stacks need."""

import re

import pytest

from cli.ci.accounts import Environment, Place, Work, environments, prepare_environment, prepare_project, variables
from tests.ci.test_workflows import WORKFLOWS, jobs
from tests.infra.permissions import USES, granted, needed
from tests.infra.recording import ROOT

PLACES = [Place(stack, f"project-{stack}", f"projects/project-{stack}/key") for stack in ("dev", "staging", "prod")]
ALL = environments(PLACES, "dev", ["dev"])
SECRETS = "container.secrets.get"
OWN_ROLES = {
    "driftReader": {SECRETS, "storage.managedFolders.get"},
    "budgetBrake": {"container.thirdPartyObjects.update"},
}


def commands(environment: Environment) -> list[str]:
    return [" ".join(command.words) for command in prepare_environment(environment, "42", "owner/name")]


def allowed(environment: Environment) -> set[str]:
    """What the account may do in its project."""
    asked = [line for line in commands(environment) if line.startswith("projects ")]
    roles = [line.partition("--role ")[2].split()[0] for line in asked]
    own = {role.rpartition("/")[2]: role for role in roles if role.startswith("projects/")}
    assert own.keys() <= OWN_ROLES.keys()
    return granted(role for role in roles if role not in own.values()).union(*(OWN_ROLES[name] for name in own))


def changes() -> set[str]:
    every = needed("create", "update", "delete")
    return {each for each in every if not each.rpartition(".")[2].startswith(("get", "list"))}


def of(work: Work) -> list[Environment]:
    return [each for each in ALL if each.work is work]


def test_the_environments_are_those_that_the_workflows_name() -> None:
    stacks = [job["with"]["stack"] for name, job in jobs() if name.startswith("deploy/") and "with" in job]
    # The environment of GitHub Pages is GitHub's own.
    named = [job["environment"] for name, job in jobs() if "environment" in job and name != "site/publish"]
    assert stacks == [place.stack for place in PLACES]
    assert {re.sub(r"\$\{\{.*?\}\}", stack, name) for name in named for stack in stacks} == {each.name for each in ALL}


def test_every_variable_that_the_workflows_read_is_set() -> None:
    read = {name for path in WORKFLOWS for name in re.findall(r"vars\.(\w+)", path.read_text())}
    for environment in ALL:
        assert read == {*variables(environment, "42"), "CLOUD", "PAGES"}


@pytest.mark.parametrize("environment", ALL, ids=lambda each: each.name)
def test_an_environment_has_rights_in_the_project_of_its_own_stack_alone(environment: Environment) -> None:
    own = environment.place.project
    # A principal's pool is named by the number of the project.
    named = [re.findall(r"project-\w+", line) for line in commands(environment)]
    assert {project for names in named for project in names} <= {own, f"{own}-pulumi-state"}
    assert all(names for names in named)


@pytest.mark.parametrize("environment", ALL, ids=lambda each: each.name)
def test_unreviewed_code_gets_no_credentials(environment: Environment) -> None:
    assert environment.reviewed or environment.branches == ("main",)


def test_deployments_wait_for_a_review_but_those_that_are_excused() -> None:
    assert {each.name for each in ALL if not each.reviewed} == {
        "dev", "expiry", "drift-dev", "drift-staging", "drift-prod", "budget-dev", "budget-staging", "budget-prod"
    }  # fmt: skip


@pytest.mark.parametrize("environment", ALL, ids=lambda each: each.name)
def test_a_job_is_believed_in_its_environment_alone_and_only_once_the_account_has_its_rights(
    environment: Environment,
) -> None:
    believed = [line for line in commands(environment) if "workloadIdentityUser" in line]
    assert believed == commands(environment)[-1:]
    assert believed[0].endswith(f"/subject/repo:owner/name:environment:{environment.name}")


def test_the_identity_provider_believes_this_repository_alone() -> None:
    (oidc,) = (command.words for command in prepare_project("project-dev", 4711) if "create-oidc" in command.words)
    assert oidc[oidc.index("--attribute-condition") + 1] == "assertion.repository_id == '4711'"


@pytest.mark.parametrize("environment", [*of(Work.PREVIEW), *of(Work.DRIFT)], ids=lambda each: each.name)
def test_who_looks_decrypts_and_changes_nothing_in_the_state(environment: Environment) -> None:
    text = "\n".join(commands(environment))
    assert "cryptoKeyDecrypter" in text
    assert "Encrypter" not in text
    assert "storage.objectViewer" in text
    assert "storage.objectUser" not in text
    assert allowed(environment) & changes() == set()


@pytest.mark.parametrize("environment", of(Work.BUDGET), ids=lambda each: each.name)
def test_what_enforces_a_budget_reads_the_records_and_stops_queues(environment: Environment) -> None:
    assert allowed(environment) & changes() == {"container.thirdPartyObjects.update"}
    assert USES["looking into a cluster"] | USES["data sets"] <= allowed(environment)


@pytest.mark.parametrize("environment", of(Work.DEPLOY), ids=lambda each: each.name)
def test_a_deployment_may_do_all_that_the_stacks_need(environment: Environment) -> None:
    everything = needed("create", "read", "update", "delete") | USES["looking into a cluster"]
    assert everything | USES["granting roles in a cluster"] <= allowed(environment)


@pytest.mark.parametrize("environment", of(Work.DEPLOY), ids=lambda each: each.name)
def test_a_deployment_grants_the_roles_that_the_program_grants_and_no_other(environment: Environment) -> None:
    (bound,) = (line for line in commands(environment) if "projectIamAdmin" in line)
    assert "modifiedGrantsByRole', []).hasOnly(" in bound
    goldens = [path.read_text() for path in (ROOT / "tests" / "golden").glob("*.yaml")]
    declared = [
        found
        for text in goldens
        for found in re.findall(r"^gcp:projects/iAMMember:IAMMember \S+:\n(?:  .*\n)*?  +role: (\S+)", text, re.M)
    ]
    assert set(re.findall(r"roles/[\w.]+", bound.partition("hasOnly")[2])) == set(declared)


@pytest.mark.parametrize("environment", of(Work.DRIFT), ids=lambda each: each.name)
def test_the_search_for_drift_may_read_every_resource(environment: Environment) -> None:
    assert needed("read") | USES["looking into a cluster"] <= allowed(environment)


@pytest.mark.parametrize("environment", of(Work.PREVIEW), ids=lambda each: each.name)
def test_a_preview_may_read_the_cluster_but_no_secret(environment: Environment) -> None:
    in_cluster = {each for each in needed("read") if each.startswith("container.")}
    looked_at = USES["looking into a cluster"] | USES["looking for the kept bucket"]
    assert in_cluster - {SECRETS} | looked_at <= allowed(environment)
    assert SECRETS not in allowed(environment)

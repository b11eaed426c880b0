"""What each account of the workflows may do, against what Google's roles grant and what the stacks need.

`.github/accounts.sh` runs against a `gh` and a `gcloud` that write down what they are asked.
"""

import re
import subprocess
from dataclasses import dataclass

import pytest

from tests.ci.conftest import StandIn, installed
from tests.ci.test_workflows import WORKFLOWS, jobs
from tests.infra.permissions import USES, granted, needed
from tests.infra.recording import ROOT

SECRETS = "container.secrets.get"
OWN_ROLES = {
    "driftReader": {SECRETS, "storage.managedFolders.get"},
    "budgetBrake": {"container.thirdPartyObjects.update"},
}
KEY = "projects/project-prod/locations/l/keyRings/r/cryptoKeys/k"
ENVIRONMENTS = ("preview-prod", "drift-prod", "budget-prod", "prod")
READS = ENVIRONMENTS[:2]
_ANSWERS = """case "$*" in
  *"$REFUSED"*) echo "ERROR: $REFUSED is refused" >&2; exit 1 ;;
  "projects describe"*) echo 42 ;;
  *" create"*) echo "ERROR: the resource already exists" >&2; exit 1 ;;
  *rules/branches/main*) echo "$APPROVALS" ;;
  *environments/prod*) echo "$REVIEWED branch_policy" ;;
  *environments/*) echo "required_reviewers branch_policy" ;;
  "api repos/owner/name --jq .id") echo 4711 ;;
esac"""


@dataclass(frozen=True)
class Ended:
    """A run of the script."""

    status: int
    errors: str
    asked: list[str]

    def of(self, environment: str) -> list[str]:
        """Command lines about the account of an environment, up to the one that lets its jobs use it."""
        account = f"github-{environment}@project-prod.iam"
        return [line for line in self.asked if account in line]


def run(stand_in: StandIn, *more: str, key: str = KEY, **answers: str) -> Ended:
    stand_in.write(_ANSWERS)
    script, environment = ROOT / ".github" / "accounts.sh", stand_in.environment
    environment |= {"REFUSED": "no such text", "APPROVALS": "1", "REVIEWED": "required_reviewers", **answers}
    words = [script, "prod", "project-prod", key, "owner/name", *more]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return Ended(ended.returncode, ended.stderr, stand_in.asked)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    found = run(installed(tmp_path_factory.mktemp("programs")))
    assert found.status == 0, found.errors
    return found


def allowed(done: Ended, environment: str) -> set[str]:
    """What the account may do in its project."""
    asked = [line for line in done.of(environment) if line.startswith("gcloud projects ")]
    roles = [line.partition("--role ")[2].split()[0] for line in asked]
    own = {role.rpartition("/")[2]: role for role in roles if role.startswith("projects/project-prod/")}
    assert own.keys() <= OWN_ROLES.keys()
    return granted(role for role in roles if role not in own.values()).union(*(OWN_ROLES[name] for name in own))


def changes() -> set[str]:
    every = needed("create", "update", "delete")
    return {each for each in every if not each.rpartition(".")[2].startswith(("get", "list"))}


def test_the_accounts_are_those_of_the_environments_that_the_workflows_name(done: Ended) -> None:
    named = [job["environment"] for _, job in jobs() if "${{" in str(job.get("environment"))]
    assert {re.sub(r"\$\{\{.*?\}\}", "prod", name) for name in named} == {*ENVIRONMENTS}
    trusted = [line.rpartition(":environment:")[2].split()[0] for line in done.asked if "workloadIdentityUser" in line]
    assert trusted == [*ENVIRONMENTS]


def test_every_variable_that_the_workflows_read_is_set(done: Ended) -> None:
    read = {name for path in WORKFLOWS for name in re.findall(r"vars\.(\w+)", path.read_text())}
    put = [line for line in done.asked if line.startswith("gh variable set")]
    for environment in ENVIRONMENTS:
        own = {line.split()[3] for line in put if line.endswith(f"--repo owner/name --env {environment}")}
        assert read == {*own, "CLOUD", "PAGES"}
    pool = "projects/42/locations/global/workloadIdentityPools/github/providers/repository"
    assert f"gh variable set WORKLOAD_IDENTITY_PROVIDER --body {pool} --repo owner/name --env prod" in put


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_job_is_trusted_only_in_its_environment_and_only_when_the_account_has_its_rights(
    done: Ended, environment: str
) -> None:
    trusted = [line for line in done.of(environment) if "workloadIdentityUser" in line]
    assert trusted == done.of(environment)[-1:]
    assert trusted[0].split()[-2].endswith(f"/subject/repo:owner/name:environment:{environment}")


def test_the_provider_trusts_only_this_repository_and_other_branches_than_main_only_in_previews(done: Ended) -> None:
    (oidc,) = (line for line in done.asked if "create-oidc" in line)
    trusted = "assertion.ref == 'refs/heads/main' || assertion.environment.startsWith('preview-')"
    assert f"--attribute-condition assertion.repository_id == '4711' && ({trusted}) " in oidc


def test_custom_roles_have_the_permissions_of_these_tests(done: Ended) -> None:
    made = dict(re.findall(r"iam roles create (\w+) --permissions (\S+)", "\n".join(done.asked)))
    assert {name: {*permissions.split(",")} for name, permissions in made.items()} == OWN_ROLES


@pytest.mark.parametrize("environment", READS)
def test_previews_and_drift_decrypt_the_state_and_change_nothing(done: Ended, environment: str) -> None:
    text = "\n".join(done.of(environment))
    assert "cryptoKeyDecrypter" in text
    assert "Encrypter" not in text
    assert "storage.objectViewer" in text
    assert "storage.objectUser" not in text
    assert allowed(done, environment) & changes() == set()


def test_what_enforces_a_budget_reads_the_records_and_stops_queues(done: Ended) -> None:
    assert allowed(done, "budget-prod") & changes() == {"container.thirdPartyObjects.update"}
    assert USES["looking into a cluster"] | USES["data sets"] <= allowed(done, "budget-prod")


def test_a_deployment_may_do_all_that_the_stacks_need(done: Ended) -> None:
    everything = needed("create", "read", "update", "delete") | USES["looking into a cluster"]
    assert everything | USES["granting roles in a cluster"] <= allowed(done, "prod")


def test_a_deployment_grants_the_roles_that_the_program_grants_and_no_other(done: Ended) -> None:
    (bound,) = (line for line in done.of("prod") if "projectIamAdmin" in line)
    assert "modifiedGrantsByRole', []).hasOnly(" in bound
    goldens = [path.read_text() for path in (ROOT / "tests" / "golden").glob("*.yaml")]
    declared = [
        found
        for text in goldens
        for found in re.findall(r"^gcp:projects/iAMMember:IAMMember \S+:\n(?:  .*\n)*?  +role: (\S+)", text, re.M)
    ]
    assert set(re.findall(r"roles/[\w.]+", bound.partition("hasOnly")[2])) == set(declared)


def test_the_search_for_drift_may_read_every_resource(done: Ended) -> None:
    assert needed("read") | USES["looking into a cluster"] <= allowed(done, "drift-prod")


def test_a_preview_may_read_the_cluster_but_no_secret(done: Ended) -> None:
    in_cluster = {each for each in needed("read") if each.startswith("container.")}
    looked_at = USES["looking into a cluster"] | USES["looking for the kept bucket"]
    assert in_cluster - {SECRETS} | looked_at <= allowed(done, "preview-prod")
    assert SECRETS not in allowed(done, "preview-prod")


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"APPROVALS": "0"}, "expected a ruleset that requires approvals on main of owner/name"),
        ({"REVIEWED": ""}, "expected required reviewers in the environment prod of owner/name"),
        ({"REFUSED": "environments/preview-prod"}, "environments/preview-prod is refused"),
    ],
)
def test_without_reviews_nothing_is_created(stand_in: StandIn, answers: dict[str, str], error: str) -> None:
    found = run(stand_in, **answers)
    assert found.status == 1
    assert error in found.errors
    assert not any(line.startswith("gcloud") for line in found.asked)


def test_a_stack_that_is_deployed_without_a_review_is_named_as_such(stand_in: StandIn) -> None:
    assert run(stand_in, "unattended", REVIEWED="").status == 0


def test_an_account_without_all_its_rights_is_trusted_by_nobody(stand_in: StandIn) -> None:
    found = run(stand_in, REFUSED="roles/iam.securityReviewer")
    assert found.status == 1
    assert "roles/iam.securityReviewer is refused" in found.errors
    assert not any("environment:drift-prod" in line for line in found.asked)


def test_an_object_that_cannot_be_created_ends_the_script_with_the_reason(stand_in: StandIn) -> None:
    found = run(stand_in, REFUSED="iam roles create driftReader")
    assert (found.status, "create driftReader is refused" in found.errors) == (1, True)


def test_a_key_of_another_project_is_refused_before_anything_is_asked(stand_in: StandIn) -> None:
    found = run(stand_in, key="projects/project-dev/locations/l/keyRings/r/cryptoKeys/k")
    assert (found.status, found.asked) == (2, [])
    assert "expected a key of the project project-prod" in found.errors

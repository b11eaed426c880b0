"""`python -m cli.ci set-up`, against a `gh` and a `gcloud` that write down what they are asked."""

import json
from pathlib import Path

import pytest
import yaml

from cli.answer import Halt
from cli.ci.set_up import Wish, set_up
from tests.cli.ci.conftest import StandIn
from tests.infra.recording import ROOT

WISH = Wish("owner/name", ("dev", "prod"), "dev", ("octocat", "owner/platform"), ("dev",))
_ANSWERS = """case "$*" in
  *" $REFUSED "*) echo "ERROR: $REFUSED is refused" >&2; exit 1 ;;
  "projects describe"*) echo 42 ;;
  *" create"*) echo "ERROR: the resource already exists" >&2; exit 1 ;;
  *deployment-branch-policies*--slurp) echo '[{"branch_policies": [{"id": 99, "name": "*"}]}]' ;;
  *branches/main*) echo '{"protected": PROTECTED}' ;;
  *users/octocat*) echo '{"id": 1}' ;;
  *teams/platform*) echo '{"id": 2}' ;;
  *"api repos/owner/name --"*) echo '{"id": 4711}' ;;
esac"""


@pytest.fixture(autouse=True)
def ready(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.write(_ANSWERS.replace("PROTECTED", "true"))
    monkeypatch.setenv("REFUSED", "nothing")


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    for stack in WISH.stacks:
        write(tmp_path, stack, f"project-{stack}", f"gcpkms://projects/project-{stack}/locations/l/keyRings/r/k?x=y")
    return tmp_path


def write(folder: Path, stack: str, project: str, key: str) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text())
    content["config"]["tpu-multislice:project"] = project
    (folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({**content, "secretsprovider": key}))


def test_without_apply_everything_is_printed_and_nothing_changes(stand_in: StandIn, stacks: Path) -> None:
    printed = list(set_up(WISH, stacks, apply=False))
    assert stand_in.changed() == []
    assert all("projects describe" in line for line in stand_in.asked if line.startswith("gcloud "))
    reviewed = "for main and refs/pull/*/merge, after a review by octocat or owner/platform"
    assert f"  environment preview-prod: {reviewed}" in printed
    assert printed[-1] == "Nothing was changed. Add --apply to run these steps."


def test_what_was_printed_is_done(stand_in: StandIn, stacks: Path) -> None:
    printed = [line.strip() for line in set_up(WISH, stacks, apply=True)]
    planned = [line.replace("'", "").replace('"', "") for line in printed if line.startswith("gcloud ")]
    done = [line for line in stand_in.asked if line.startswith("gcloud ") and "describe" not in line]
    assert [line.removesuffix(" --quiet").replace("'", "") for line in done] == planned
    put = [line for line in stand_in.asked if line.startswith("gh variable set")]
    pool = "projects/42/locations/global/workloadIdentityPools/github/providers/repository"
    prod = "--repo owner/name --env prod"
    assert {
        f"gh variable set WORKLOAD_IDENTITY_PROVIDER --body {pool} {prod}",
        f"gh variable set SERVICE_ACCOUNT --body github-prod@project-prod.iam.gserviceaccount.com {prod}",
        f"gh variable set PULUMI_BACKEND_URL --body gs://project-prod-pulumi-state {prod}",
    } <= set(put)
    assert stand_in.asked[-1] == "gh variable set CLOUD --body true --repo owner/name"


def test_an_environment_has_its_branches_and_reviewers_before_an_account_trusts_it(
    stand_in: StandIn, stacks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSED", "github-ephemeral")
    with pytest.raises(Halt, match="github-ephemeral is refused"):
        list(set_up(WISH, stacks, apply=True))
    asked = stand_in.asked
    assert not any("environment:ephemeral" in line for line in asked)
    made = asked.index("gh api repos/owner/name/environments/ephemeral --method PUT --input -")
    own = json.loads(asked[made + 1])
    assert [each["type"] for each in own["reviewers"]] == ["User", "Team"]
    assert own["prevent_self_review"]
    allowed = f"gh api repos/owner/name/environments/ephemeral/deployment-branch-policies --method {'POST'} --input -"
    names = [json.loads(asked[at + 1])["name"] for at, line in enumerate(asked) if line == allowed]
    assert names == ["main", "refs/pull/*/merge"]
    without = json.loads(asked[asked.index("gh api repos/owner/name/environments/dev --method PUT --input -") + 1])
    assert without["reviewers"] == []
    assert not any("CLOUD" in line for line in asked), "the workflows would use a cloud that is not set up"


def test_a_branch_that_somebody_allowed_is_taken_back(stand_in: StandIn, stacks: Path) -> None:
    list(set_up(WISH, stacks, apply=True))
    policies = "gh api repos/owner/name/environments/prod/deployment-branch-policies"
    assert f"{policies}/99 --method DELETE" in stand_in.asked


def test_every_error_is_reported_before_anything_is_asked(stand_in: StandIn, stacks: Path) -> None:
    write(stacks, "prod", "project-dev", "")
    wish = Wish("owner/name", ("dev", "prod"), "staging", (), ("test",))
    with pytest.raises(Halt) as halted:
        list(set_up(wish, stacks, apply=True))
    message = str(halted.value)
    assert "project-dev, which is the project of dev" in message
    for place in ("secretsprovider of prod", "--ephemeral", "--unattended", "--reviewer"):
        assert place in message
    assert stand_in.asked == []


def test_the_project_of_an_example_is_refused(stand_in: StandIn, stacks: Path) -> None:
    write(stacks, "dev", "my-project", "gcpkms://projects/my-project/x")
    with pytest.raises(Halt, match="cloud.project of dev: expected a project of your own, got my-project"):
        list(set_up(WISH, stacks, apply=True))
    assert stand_in.asked == []


def test_a_main_to_which_everybody_pushes_is_refused(stand_in: StandIn, stacks: Path) -> None:
    stand_in.write(_ANSWERS.replace("PROTECTED", "false"))
    with pytest.raises(Halt, match="expected a protected branch main"):
        list(set_up(WISH, stacks, apply=True))
    assert len(stand_in.asked) == 1

"""docs/ci.md sets up what the workflows use, no more and no less."""

import os
import re
import subprocess

import pytest

from tests.ci.test_workflows import ROOT, WORKFLOWS, jobs
from tests.infra.permissions import USES, granted, needed

DOCUMENT = (ROOT / "docs" / "ci.md").read_text()
GIVEN = {"PROJECT": "project", "REPOSITORY": "org/name", "STATE": "state", "KEY": "key"}
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$ASKED"
case "$*" in *projectNumber*) echo 42;; *--jq*) echo 4711;; esac
"""


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the set-up asks of `gcloud` and `gh`."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name in ("gcloud", "gh"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    (script,) = (block for block in re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL) if "gcloud" in block)
    environment = GIVEN | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "ASKED": str(folder / "asked")}
    subprocess.run(["bash", "-euc", script], env=environment, check=True)
    return (folder / "asked").read_text().splitlines()


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern} in {text}"
    return found[1]


def environments() -> set[str]:
    """Of GitHub, as the jobs name them for the stacks that are deployed."""
    stacks = [job["with"]["stack"] for name, job in jobs() if name.startswith("deploy/") and "with" in job]
    named = [job["environment"] for _, job in jobs() if "environment" in job]
    return {re.sub(r"\$\{\{.*?\}\}", stack, name) for name in named for stack in stacks}


def test_each_environment_of_a_job_gets_an_account_that_it_alone_may_be(asked: list[str]) -> None:
    bound = [
        re.search(r"binding github-(\S+)@project.*subject/repo:org/name:environment:(\S+)$", line) for line in asked
    ]
    pairs = [(found[1], found[2]) for found in bound if found]
    assert {account for account, _ in pairs} == environments()
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert {line.split("/")[-1] for line in asked if "--method PUT" in line} == environments()


def test_the_identity_provider_believes_this_repository_alone(asked: list[str]) -> None:
    (provider,) = (line for line in asked if "create-oidc" in line)
    assert "--attribute-condition assertion.repository_id == '4711'" in provider


def test_every_variable_that_the_workflows_read_is_set(asked: list[str]) -> None:
    read = {name for path in WORKFLOWS for name in re.findall(r"vars\.(\w+)", path.read_text())}
    assert read == {found[1] for line in asked if (found := re.search(r"variable set (\w+)", line))}


def test_previews_and_drift_may_change_nothing_in_the_state(asked: list[str]) -> None:
    roles = {first(r"github-(\S+)@", line): first(r"--role (\S+)", line) for line in asked if "storage buckets" in line}
    looking = {name for name in roles if name.startswith(("preview-", "drift-"))}
    assert {roles[name] for name in looking} == {"roles/storage.objectViewer"}
    assert {roles[name] for name in roles.keys() - looking} == {"roles/storage.objectUser"}


@pytest.fixture(scope="session")
def allowed(asked: list[str]) -> dict[str, set[str]]:
    """What each account may do in the project, by its GitHub environment."""
    made = {first(r"create (\S+)", line): {first(r"--permissions (\S+)", line)} for line in asked if " roles " in line}
    found: dict[str, set[str]] = {}
    for line in (line for line in asked if "projects add-iam-policy-binding" in line):
        role = first(r"--role (\S+)", line)
        own = made.get(role.removeprefix("projects/project/roles/"))
        found.setdefault(first(r"github-(\S+)@", line), set()).update(granted([role]) if own is None else own)
    return found


SECRETS = "container.secrets.get"


def changes() -> set[str]:
    every = needed("create", "update", "delete")
    return {each for each in every if not each.rpartition(".")[2].startswith(("get", "list"))}


@pytest.mark.parametrize("environment", ["dev", "staging", "prod", "ephemeral"])
def test_a_deployment_may_do_all_that_the_stacks_need(environment: str, allowed: dict[str, set[str]]) -> None:
    everything = needed("create", "read", "update", "delete") | USES["looking into a cluster"]
    assert everything | USES["granting roles in a cluster"] <= allowed[environment]


@pytest.mark.parametrize("environment", ["drift-dev", "drift-staging", "drift-prod"])
def test_the_search_for_drift_may_read_every_resource_and_change_none(
    environment: str, allowed: dict[str, set[str]]
) -> None:
    assert needed("read") | USES["looking into a cluster"] <= allowed[environment]
    assert allowed[environment] & changes() == set()


@pytest.mark.parametrize("environment", ["preview-dev", "preview-staging", "preview-prod"])
def test_a_preview_may_read_the_cluster_but_no_secret_and_change_nothing(
    environment: str, allowed: dict[str, set[str]]
) -> None:
    in_cluster = {each for each in needed("read") if each.startswith("container.")}
    looked_at = USES["looking into a cluster"] | USES["looking for the kept bucket"]
    assert in_cluster - {SECRETS} | looked_at <= allowed[environment]
    assert allowed[environment] & (changes() | {SECRETS}) == set()


def test_every_workflow_is_in_the_table_with_when_it_runs() -> None:
    told = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|", DOCUMENT, re.MULTILINE))
    assert told.keys() == {path.name for path in WORKFLOWS}
    nightly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \d+ \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every night" in when} == nightly
    hourly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \* \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every hour" in when} == hourly

"""docs/ci.md sets up what the workflows use, no more and no less."""

import os
import re
import subprocess

import pytest

from tests.ci.test_workflows import ROOT, WORKFLOWS, jobs

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


def test_a_preview_may_change_nothing_in_the_state(asked: list[str]) -> None:
    roles = {first(r"github-(\S+)@", line): first(r"--role (\S+)", line) for line in asked if "storage buckets" in line}
    assert {role for name, role in roles.items() if name.startswith("preview-")} == {"roles/storage.objectViewer"}
    assert roles["prod"] == "roles/storage.objectUser"


def test_every_workflow_is_in_the_table_with_when_it_runs() -> None:
    told = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|", DOCUMENT, re.MULTILINE))
    assert told.keys() == {path.name for path in WORKFLOWS}
    nightly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \d+ \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every night" in when} == nightly
    hourly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \* \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every hour" in when} == hourly

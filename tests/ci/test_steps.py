"""Steps of the workflows that are shell run as GitHub runs them."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.programs import versions
from tests.ci.conftest import StandIn
from tests.ci.test_workflows import run_lines
from tests.infra.recording import ROOT

CHANGELOG = """# Changelog

## Unreleased

- Later.

## 1.2.0 - 2026-11-24

### Added
- Something.

## 1.1.0

- Before.
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def run(part: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the one step with this text in it."""
    (line,) = {line for line in run_lines() if part in line}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
    environment = {**os.environ, **variables}
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(checkout: Path) -> None:
    assert run("CHANGELOG.md", checkout, TAG="v1.2.0").returncode == 0
    assert (checkout / "notes.md").read_text() == "\n### Added\n- Something.\n\n"


def test_a_version_without_notes_makes_no_release(checkout: Path) -> None:
    assert run("CHANGELOG.md", checkout, TAG="v1.3.0").returncode == 1
    (checkout / "CHANGELOG.md").write_text("## 1.3.0\n\n## 1.2.0\n\n- Something.\n")
    assert run("CHANGELOG.md", checkout, TAG="v1.3.0").returncode == 1


@pytest.mark.parametrize(("tag", "status"), [("v1.2.0", 0), ("v1.1.0", 1), ("v1.2", 1)])
def test_a_tag_that_is_not_the_version_makes_no_release(checkout: Path, tag: str, status: int) -> None:
    assert run('grep --line-regexp "version', checkout, TAG=tag).returncode == status


@pytest.mark.parametrize(("newest", "status"), [(COMMIT, 0), ("f" * 40, 1)])
def test_only_the_plan_of_the_newest_commit_is_deployed(
    stand_in: StandIn, tmp_path: Path, newest: str, status: int
) -> None:
    stand_in.write(f"echo {newest}")
    variables = {"GITHUB_REPOSITORY": "owner/name", "GITHUB_REF_NAME": "main", "GITHUB_SHA": COMMIT}
    found = run("/commits/", tmp_path, **variables)
    assert stand_in.asked == ["gh api repos/owner/name/commits/main --jq .sha"]
    assert (found.returncode, "::error::" in found.stdout) == (status, bool(status))


def test_a_commit_that_cannot_be_looked_up_is_not_deployed(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.write(f"echo {COMMIT}; exit 1")
    variables = {"GITHUB_REPOSITORY": "owner/name", "GITHUB_REF_NAME": "main", "GITHUB_SHA": COMMIT}
    assert run("/commits/", tmp_path, **variables).returncode == 1


def test_the_engine_has_the_version_that_the_tests_use(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert run("tools/pulumi/go.mod", ROOT, GITHUB_OUTPUT=str(output)).returncode == 0
    assert output.read_text() == f"version={versions()['pulumi']}\n"


@pytest.mark.complete
def test_the_bill_of_materials_has_every_package_of_the_image(tmp_path: Path) -> None:
    (line,) = {line for line in run_lines() if "cyclonedx-py" in line}
    words = [
        str(ROOT / word) if word.startswith((".venv", "requirements/", "pyproject")) else word for word in line.split()
    ]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "image.cdx.json").read_text()
    locked = [line for line in (ROOT / "requirements" / "image.txt").read_text().splitlines() if "==" in line]
    assert locked
    assert [line for line in locked if f'"purl": "pkg:pypi/{line.split("==")[0]}@' not in text] == []


@pytest.mark.parametrize(
    ("added", "head", "waits"), [(False, "before | prod |", "8.0 h | 0 min |"), (True, "prod |", "0 min |")]
)
def test_a_changed_stack_is_replayed_before_and_after_from_the_committed_trace(
    added: bool, head: str, waits: str, tmp_path: Path
) -> None:
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "Pulumi.yaml").symlink_to(ROOT / "Pulumi.yaml")
    (stacks / "trace.prod.csv").write_text(
        "name,submitted,team,shape,slices,hours\none,0,evaluation,4x4x4,1,9\ntwo,1,evaluation,4x4x4,1,1\n"
    )
    before = (ROOT / "stacks" / "Pulumi.prod.yaml").read_text()
    after = before.replace("{chips: 64, borrowing_limit: 0}", "{chips: 64, borrowing_limit: 64}")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    for name, content in (("other" if added else "prod", before), ("prod", after)):
        (stacks / f"Pulumi.{name}.yaml").write_text(content)
        subprocess.run(["git", "add", "stacks"], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", "x"], cwd=tmp_path, check=True)
    found = run("cli.main replay", tmp_path, STACK="prod", PYTHONPATH=str(ROOT))
    assert found.returncode == 0, found.stderr
    written = (tmp_path / "preview.md").read_text()
    assert f"|  | {head}" in written
    assert f"| wait, longest | {waits}" in written

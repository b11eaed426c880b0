import os
from pathlib import Path

import pytest

from infra.stack.project import CHECKOUT, ProjectError, find_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").touch()
    return folder


def test_a_project_is_found_from_its_own_folder_and_from_folders_below(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "notes" / "more"
    below.mkdir(parents=True)
    for folder in (project, project / "stacks", below):
        monkeypatch.chdir(folder)
        assert find_project() == project


def test_a_folder_without_stacks_belongs_to_the_project_above(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = project / "other"
    other.mkdir()
    (other / "Pulumi.yaml").touch()
    monkeypatch.chdir(other)
    assert find_project() == project


def test_a_project_behind_a_link_has_the_name_that_the_shell_shows(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    assert find_project() == link
    monkeypatch.setenv("PWD", os.sep)
    assert find_project() == project


def test_outside_of_projects_the_repository_is_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_project() == CHECKOUT


def test_an_installed_program_says_how_to_create_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.stack.project.CHECKOUT", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectError, match="multislice init"):
        find_project()

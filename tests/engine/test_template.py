"""The repository as a template of the real `pulumi new`, without its language plugin."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cli import stack_file
from sandbox import programs
from tests.engine import language_host

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository, as a clone of it has them."""
    folder = tmp_path_factory.mktemp("template")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def new(folder: Path, template: Path, *arguments: str) -> Path:
    """Make a project from the template. Return its folder."""
    project, bin_folder = folder / "tpus", folder / "bin"
    for each in (project, bin_folder, folder / "state"):
        each.mkdir()
    language_host.install(bin_folder)
    environment = {
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": f"file://{folder}/state",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
    command = [str(programs.found().path("pulumi")), "new", str(template), "--offline", "--yes", *arguments]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_a_new_project_has_a_stack_of_the_values_that_were_asked_for(tmp_path: Path, template: Path) -> None:
    asked = {"project": "acme-ml", "region": "us-central1", "zone": "us-central1-a", "generation": "v5p"}
    answers = [f"--config=tpu-multislice:{name}={value}" for name, value in {**asked, "topology": "v5p-16"}.items()]
    project = new(tmp_path, template, "--name=acme-tpus", "--stack=dev", *answers)
    about = yaml.safe_load((project / "Pulumi.yaml").read_text())
    assert about["name"] == "acme-tpus"
    assert "template" not in about
    settings = stack_file.read(project / "stacks" / "Pulumi.dev.yaml")
    assert settings.cloud.model_dump() == {key: asked[key] for key in ("project", "region", "zone")}
    (group,) = settings.slices.values()
    assert (group.generation, group.topology) == ("v5p", "2x2x2")
    assert (project / "__main__.py").read_bytes() == (ROOT / "__main__.py").read_bytes()
    assert "-r requirements/desk.txt" in (project / "requirements.txt").read_text()


def test_a_new_stack_of_another_name_has_the_defaults(tmp_path: Path, template: Path) -> None:
    project = new(tmp_path, template, "--name=tpus", "--stack=first", "--config=tpu-multislice:project=acme-ml")
    settings = stack_file.read(project / "stacks" / "Pulumi.first.yaml")
    assert settings.cluster.name == "multislice-first"
    assert settings.slices["trillium"].topology == "2x4"

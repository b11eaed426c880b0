"""How the engine keeps the state of a sandbox."""

from pathlib import Path

from pulumi import automation

from sandbox import programs
from sandbox.engine import environment, project_folder
from sandbox.site import create
from tests.chain.stack import ignore


def test_the_state_is_kept_in_files_alone_that_are_replaced_as_a_whole(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    options = automation.LocalWorkspaceOptions(
        work_dir=str(project_folder(site)),
        pulumi_home=str(site.pulumi_home),
        env_vars=environment(site),
        pulumi_command=automation.PulumiCommand(root=str(programs.prepare(ignore).path("pulumi").parent.parent)),
    )
    stack = automation.create_stack("local", project_name="tpu-multislice", program=lambda: None, opts=options)
    stack.up()
    kept = [path.name for path in (site.root / "state").rglob("local*") if path.is_file()]
    assert "local.json" in kept
    assert [name for name in kept if name.endswith(".attrs")] == []

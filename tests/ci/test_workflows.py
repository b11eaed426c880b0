"""The workflows keep to the rules of docs/how-to/ci.md, and every command in them is one that the program has."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import cli.main
import cli.preview_comment
from sandbox.builds import ACTIONLINT, prepare_one
from tests.__main__ import LANES
from tests.documents.command_lines import command_of

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
APPS = {"cli.main": cli.main.app, "cli.preview_comment": cli.preview_comment.app}
CHANGES_A_STACK = re.compile(r"pulumi (up|destroy|refresh)")
NUMBERS = {"$PULL_REQUEST": "5"}
"""Variables of the shell whose values the commands take for numbers."""

Node = dict[str, Any]


def load(path: Path) -> Node:
    return cast("Node", yaml.load(path.read_text(), yaml.BaseLoader))


def jobs() -> Iterator[tuple[str, Node]]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.stem}/{name}", job


def steps(job: Node) -> list[Node]:
    return job.get("steps", [])


def run_lines() -> list[str]:
    held = [step for _, job in jobs() for step in steps(job)]
    held += [step for path in ACTIONS for step in load(path)["runs"]["steps"]]
    return [step["run"] for step in held if "run" in step]


def commands() -> list[tuple[str, list[str]]]:
    """Module and arguments of each `python -m` in the workflows, up to what the shell does with its output."""
    found: list[tuple[str, list[str]]] = []
    for line in sorted(set(run_lines())):
        for told in re.findall(r"\.venv/bin/python -m (cli\..*?)(?= >| \|\||$)", line):
            module, *arguments = shlex.split(told)
            found.append((module, arguments))
    return found


@pytest.fixture(scope="session")
def actionlint() -> Path:
    return prepare_one(ACTIONLINT, lambda _: None)


def test_actionlint_finds_no_fault(actionlint: Path) -> None:
    # Each `run` is one line, so a linter of shell has no use, and pyflakes nothing to read.
    checked = subprocess.run(
        [actionlint, "-shellcheck=", "-pyflakes=", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_action_of_others_is_pinned_by_commit_with_its_version_beside_it(path: Path) -> None:
    uses = re.findall(r"uses: (.+)", path.read_text())
    assert uses
    pinned = r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [used for used in uses if not used.startswith("./") and not re.fullmatch(pinned, used)] == []


def test_an_action_is_pinned_to_one_commit_everywhere() -> None:
    texts = [path.read_text() for path in [*WORKFLOWS, *ACTIONS]]
    pins = {used for text in texts for used in re.findall(r"uses: ([\w-]+/.+)", text)}
    assert len({pin.split("@")[0] for pin in pins}) == len(pins)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_rights_but_those_that_a_job_asks_for(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert all(job.get("permissions") for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_runs_with_this_repositorys_rights_on_a_strangers_event(path: Path) -> None:
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(load(path)["on"])


def test_a_job_that_may_write_or_has_credentials_never_runs_a_forks_code() -> None:
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    on_pull_requests = [path.stem for path in WORKFLOWS if "pull_request" in load(path)["on"]]
    mighty = {
        name: job.get("if", "")
        for name, job in jobs()
        if name.split("/")[0] in on_pull_requests and set(job["permissions"].values()) != {"read"}
    }
    assert mighty.keys() == {"preview/cloud"}
    assert [name for name, condition in mighty.items() if own not in condition] == []


def test_every_job_ends_in_time() -> None:
    without = [name for name, job in jobs() if "uses" not in job and "timeout-minutes" not in job]
    assert without == []


def test_a_checkout_leaves_no_token_behind() -> None:
    checkouts = [step for _, job in jobs() for step in steps(job) if "actions/checkout@" in step.get("uses", "")]
    assert checkouts
    assert [step for step in checkouts if step["with"].get("persist-credentials") != "false"] == []


def test_what_changes_a_stack_is_alone_on_it_and_never_cut_short() -> None:
    changing = {
        name: job.get("concurrency")
        for name, job in jobs()
        if any(CHANGES_A_STACK.search(step.get("run", "")) for step in steps(job))
    }
    assert changing.keys() == {"stack/up"}
    assert {held["group"].split("${{")[0] for held in changing.values() if held} == {"stack-"}
    assert {held["cancel-in-progress"] for held in changing.values() if held} == {"false"}


def test_the_shell_gets_what_comes_from_outside_by_its_environment() -> None:
    assert [line for line in run_lines() if "${{" in line or "\n" in line] == []


def test_no_failure_of_a_command_is_lost_in_a_substitution() -> None:
    # `echo "x=$(false)"` succeeds.
    assert [line for line in run_lines() if "$(" in line or "`" in line] == []


def test_every_output_that_is_read_is_written_by_the_command_of_its_step() -> None:
    read = {
        found
        for path in [*WORKFLOWS, *ACTIONS]
        for found in re.findall(r"steps\.\w+\.outputs\.(\w+)", path.read_text())
    }
    assert read == {"version"}
    assert [name for name in read if f"{name}=" not in "".join(run_lines())] == []


def test_a_deployment_waits_for_every_test_on_its_commit() -> None:
    deployment = load(ROOT / ".github" / "workflows" / "deploy.yml")["jobs"]
    (tests,) = [name for name, job in deployment.items() if job["uses"] == "./.github/workflows/complete.yml"]
    waiting = {name: job.get("needs") for name, job in deployment.items() if name != tests}
    assert [name for name, needed in waiting.items() if needed not in {tests, *waiting}] == []


def test_every_lane_of_the_complete_tier_has_a_job_of_its_own_under_an_hour() -> None:
    job = load(ROOT / ".github" / "workflows" / "complete.yml")["jobs"]["tests"]
    assert sorted(job["strategy"]["matrix"]["part"]) == sorted({lane.part for lane in LANES})
    assert int(job["timeout-minutes"]) <= 60


def test_up_carries_out_the_very_plan_that_the_preview_saved() -> None:
    stack = load(ROOT / ".github" / "workflows" / "stack.yml")["jobs"]
    saved = next(step["run"] for step in stack["plan"]["steps"] if "--save-plan" in step.get("run", ""))
    carried_out = next(step["run"] for step in stack["up"]["steps"] if "pulumi up" in step.get("run", ""))
    (kept,) = (step["with"] for step in stack["plan"]["steps"] if "upload-artifact" in step.get("uses", ""))
    (fetched,) = (step["with"] for step in stack["up"]["steps"] if "download-artifact" in step.get("uses", ""))
    assert f"--save-plan {kept['path']} " in saved
    assert f"--plan {kept['path']} " in carried_out
    assert kept["name"] == fetched["name"]


def test_every_stack_that_is_deployed_is_previewed_and_watched_for_drift() -> None:
    deployed = [job["with"]["stack"] for name, job in jobs() if name.startswith("deploy/") and "with" in job]
    matrices = {name: job["strategy"]["matrix"]["stack"] for name, job in jobs() if "stack" in str(job.get("strategy"))}
    assert matrices.keys() == {"preview/cloud", "preview/offline", "drift/drift", "budget/enforce"}
    assert all(stacks == deployed for stacks in matrices.values())
    assert all((ROOT / "stacks" / f"Pulumi.{stack}.yaml").exists() for stack in deployed)


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join([command[0], *command[1]]))
def test_every_command_of_a_workflow_is_one_of_the_program(command: tuple[str, list[str]]) -> None:
    module, arguments = command
    command_of(APPS[module], [NUMBERS.get(argument, argument) for argument in arguments])


def test_every_make_target_of_a_workflow_exists() -> None:
    named = {target for line in run_lines() for target in re.findall(r"^make ([\w-]+)", line)}
    assert {"audit", "docs", "environment", "programs"} <= named
    assert named <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_dependabot_looks_at_every_module_and_at_both_locks() -> None:
    updates = {update["package-ecosystem"]: update for update in load(ROOT / ".github" / "dependabot.yml")["updates"]}
    assert updates.keys() == {"pip", "gomod", "github-actions", "docker"}
    for update in updates.values():
        assert all(list(ROOT.glob(f"./{folder}/*")) for folder in update["directories"])
        assert int(update["cooldown"]["default-days"]) >= 7
    assert "/tools/*" in updates["gomod"]["directories"]

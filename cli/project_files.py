"""Finds the files of a stack in the project: its stack file and its settings of the policy pack."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli import stack_file
from cli.answer import Halt
from infra.stack.project import CHECKOUT, STACKS, find_project
from infra.stack.settings.errors import count_errors


@dataclass(frozen=True)
class Files:
    """Folders of stack files and policy settings."""

    stacks: Path
    policies: Path

    def stack(self, name: str) -> Path:
        return self.stacks / f"Pulumi.{name}.yaml"

    def policy(self, name: str) -> Path:
        """Return the path of the file with levels and exceptions of the rules. Without it no exception counts."""
        return self.policies / f"{name}.json"

    def encryption(self, name: str) -> tuple[str, ...]:
        """Return the arguments that `pulumi stack init` needs to keep the key of the file's secrets."""
        try:
            content = stack_file.loaded(self.stack(name))
        except Halt:
            return ()
        provider = content.get("secretsprovider") if isinstance(content, Mapping) else None
        return (f"--secrets-provider={provider}",) if provider else ()


POLICY = CHECKOUT / "policy"
"""Folder of the program's policy pack."""
PACK_FILE = "PulumiPolicy.yaml"


def files_of_project() -> Files:
    """Return the folders of the project. Raise ProjectError if there is no project."""
    project = find_project()
    return Files(project / STACKS, project / "policy" / STACKS)


def policy_pack() -> Path:
    """Return the folder of the project's policy pack, which may have rules of its own, or of the program's."""
    own = find_project() / "policy"
    return own if (own / PACK_FILE).is_file() else POLICY


def check_policy_file(path: Path) -> None:
    """Raise Halt with all errors of a stack's settings of the rules, each with its line.

    Pulumi refuses exceptions for a rule that is not in the pack, without naming the rule.
    """
    # The rules import Pulumi's SDK.
    from policy.exceptions import file_errors
    from policy.rules import ALL_POLICIES

    file = stack_file.opened(path, "the settings of rules")
    errors = file_errors(file.content, ALL_POLICIES)
    found = [(file.lines.find(place), f"{place}: {text}" if place else text) for place, text in errors]
    if lines := file.ordered(found or _json_errors(path)):
        raise Halt("\n".join([*lines, f"{count_errors(len(lines))}. {stack_file.ADVICE}"]))


def _json_errors(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of the error of a YAML file that is not JSON, which Pulumi reads."""
    try:
        json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        return [(error.lineno, f"expected JSON, got: {error.msg}")]
    return []

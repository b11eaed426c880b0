"""`multislice init` creates a stack file from a few values, and a project for it in a folder without one."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.stack_file import PACK_FILE, POLICY, Files
from infra.review.obstacles import EXAMPLES
from infra.stack.cost import price_table
from infra.stack.project import CHECKOUT, PROJECT_FILE, STACKS, project_above, working_folder
from infra.stack.settings.errors import FieldError, SettingsError, expectation
from infra.stack.settings.read import parse
from infra.stack.settings.starter import cluster_of, read_starter, sections
from infra.stack.settings.values import NAMESPACE, ClusterName
from infra.stack.tpu import all_shapes, generation_names, interpret
from policy.exceptions import KEY, MAX_LIFETIME

_EXAMPLE = "dev"
"""Stack whose exceptions from the policy rules suit a first stack."""
_SCHEMA = "schema.json"
_PACKAGE = __name__.removesuffix("cli.init")
"""Package that has the program's modules, with a dot: in the installed package `tpu_multislice.`, otherwise nothing."""
_PROGRAM = f'''"""The Pulumi program: turns a stack file into a cluster with TPU slices, queues and running jobs."""

import runpy

runpy.run_module("{_PACKAGE}infra.program", run_name="__main__")
'''
_POLICY_PACK = f'''"""The policy pack, as Pulumi starts it: the rules of the installed program."""

import runpy

runpy.run_module("{_PACKAGE}policy", run_name="__main__")
'''
_OPTIONS = {
    "cluster.name": "NAME",
    "cloud.project": "--project",
    "cloud.region": "--region",
    "cloud.zone": "--zone",
    "slices": "--generation, --topology",
    "prices": "--capacity",
}
"""Options by the section or value of the stack file that they become."""
_MAX_CHOICES = 12


@dataclass(frozen=True)
class InitOptions:
    """Options of the command. None: not given."""

    project: str | None
    generation: str | None
    topology: str | None
    zone: str | None
    region: str | None
    """None: the region of the zone."""
    capacity: Literal["on-demand", "spot"]

    @property
    def missing(self) -> list[str]:
        """Names of the missing values."""
        return [name for name, value in asdict(self).items() if value is None and name != "region"]


def init(name: str, options: InitOptions, console: Console, today: date | None = None) -> int:
    """Write the stack file and its policy settings, and the files of a project. Return the exit status.

    `today` is the day from which the exceptions from rules count; by default the present one.

    Raise Halt with all errors, or if a file already exists. Then nothing is written.
    """
    here = working_folder()
    found = project_above(here)
    project = found or here
    files = Files(project / STACKS, project / "policy" / STACKS)
    copied: dict[Path, Path] = {}
    written = {files.policy(name): _exceptions(today or datetime.now(UTC).date())}
    if found is None:
        copied[files.stacks / _SCHEMA] = CHECKOUT / STACKS / _SCHEMA
        written |= _of_project(project)
    if taken := [str(path) for path in (files.stack(name), *copied, *written) if path.exists()]:
        choose = "choose another name with `multislice init NAME`, or another folder"
        raise Halt(f"expected names of new files, got {', '.join(taken)}; {choose}")
    if options.missing and sys.stdin.isatty():
        if error := _name_error(cluster_of(name)):
            raise Halt(str(error))
        options = _ask(options, lambda question: console.input(question, markup=False).strip())
    written[files.stack(name)] = _stack_file(name, options)
    for path in (*copied, *written):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path, text in written.items():
        path.write_text(text)
    for path, source in copied.items():
        copyfile(source, path)
    lines = [f"wrote {path}" for path in (*written, *copied)]
    lines += [f"next: multislice review -s {name}, then multislice up -s {name}"]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return 0


def _name_error(name: str) -> FieldError | None:
    try:
        TypeAdapter(ClusterName).validate_python(name)
    except ValidationError as error:
        return FieldError("NAME", expectation(error.errors()[0]["msg"]), repr(name), "choose another")
    return None


def _exceptions(today: date) -> str:
    """Return the policy settings of a new stack, whose exceptions last as long as a rule allows."""
    rules: dict[str, Any] = json.loads((POLICY / STACKS / f"{_EXAMPLE}.json").read_text())
    # One day less, because the rules may be checked where it is still yesterday.
    last_day = today + MAX_LIFETIME - timedelta(days=1)
    for exception in (exception for settings in rules.values() for exception in settings[KEY]):
        exception["expires_on"] = str(last_day)
    return json.dumps(rules, indent=2) + "\n"


def _of_project(folder: Path) -> dict[Path, str]:
    # Without an environment of its own: Pulumi uses the Python on the PATH, in which this command is installed.
    runtime = {"description": "TPU slices, queues and training jobs on GKE", "runtime": "python"}
    described = {"name": NAMESPACE, **runtime, "stackConfigDir": STACKS}
    return {
        folder / PROJECT_FILE: yaml.safe_dump(described, sort_keys=False),
        folder / "__main__.py": _PROGRAM,
        folder / "policy" / PACK_FILE: yaml.safe_dump(runtime, sort_keys=False),
        folder / "policy" / "__main__.py": _POLICY_PACK,
    }


def _stack_file(name: str, options: InitOptions) -> str:
    """Return the content of the stack file. Raise Halt with every error of the options."""
    faults = [f"--{option}: expected a value, got nothing; add it" for option in options.missing]
    if options.project in EXAMPLES:
        faults.append(f"--project: expected a project of your own, got {options.project}, which is that of an example")
    starter, wrong = read_starter({key: value for key, value in asdict(options).items() if value is not None})
    faults += [f"--{each.path}: expected {each.expected}, got {each.got}" for each in wrong]
    found = sections(starter, cluster_of(name))
    try:
        parse(found)
    except SettingsError as error:
        faults += dict.fromkeys(map(_as_option, error.errors))
    if faults:
        raise Halt("\n".join(faults))
    config = {f"{stack_file.PREFIX}{key}": value for key, value in found.items()}
    return f"# yaml-language-server: $schema={_SCHEMA}\n{yaml.safe_dump({'config': config}, sort_keys=False)}"


def _as_option(error: FieldError) -> str:
    option = next((option for path, option in _OPTIONS.items() if error.path.startswith(path)), error.path)
    meant = f"did you mean {error.meant}? " if error.meant else ""
    # There is no stack file to change yet.
    fix = "" if error.fix.startswith("change ") else f"; {error.fix}"
    return f"{option}: {meant}expected {error.expected}, got {error.got}{fix}"


def _ask(options: InitOptions, ask: Callable[[str], str]) -> InitOptions:
    for name in options.missing:
        answer = ""
        while not answer:
            answer = ask(f"{name}{_choices(name, options)}: ")
        options = replace(options, **{name: answer})
    return options


def _choices(name: str, options: InitOptions) -> str:
    generation = interpret(options.generation or "", "")[0]
    places = {row.place: row for row in price_table().prices if row.generation == generation}
    choices: Mapping[str, list[str]] = {
        "generation": generation_names(),
        "topology": list(dict.fromkeys(each.topology for each in all_shapes() if each.generation == generation)),
        "zone": [f"{place}{'' if row.zone else '-*'}" for place, row in places.items()],
    }
    listed = choices.get(name, [])[:_MAX_CHOICES]
    return f" ({', '.join(listed)}{', ...' if len(choices[name]) > len(listed) else ''})" if listed else ""

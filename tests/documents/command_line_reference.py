"""Renders the reference of the commands from their command line parsers."""

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import typer

from cli import train
from cli.main import app
from tests.documents.model_fields import one_line
from tests.documents.pages import MADE, ROOT

_HEAD = f"""# Command line

{MADE.format("tests/documents/command_line_reference.py")}

Every command, option and default. [Commands](../how-to/index.md) lists the pages that describe them.

To use `multislice`, install it with `pip install '.[stack]'`, or activate the virtual environment of the checkout with
`. .venv/bin/activate`. `multislice --install-completion` makes the shell complete commands, options, stacks and jobs.

`make up` and `make down` run `multislice up` and `multislice down` with `--stack local --sandbox`. Pass further options
in `ARGS`, such as `make down ARGS=--stop-jobs`.
"""
_COLUMNS = "| Option | Default | Meaning |\n|---|---|---|\n"
_EXIT_STATUS = re.compile(r"(?:Exit status |; )(\d+): ([^.;]+)")
_MODULES = {"train": train.app}
"""Commands behind `make` that get their options from `ARGS`."""


@dataclass(frozen=True)
class Command:
    """A command of `multislice`."""

    words: str
    """Name of its group, if any, and its own name."""
    about: str
    parameters: tuple[Any, ...]

    @property
    def sentence(self) -> str:
        """Return the description without the exit statuses."""
        return self.about.partition(" Exit status ")[0]

    @property
    def exit_statuses(self) -> dict[int, str]:
        """Return the exit statuses in the description. All commands have further ones."""
        return {int(number): meaning.strip() for number, meaning in _EXIT_STATUS.findall(self.about)}


@dataclass(frozen=True)
class Target:
    """A target of the Makefile."""

    words: str
    about: str


def commands() -> Iterator[Command]:
    """Yield the commands of `multislice`, in the order of its help."""
    return _below(typer.main.get_command(app), ())


def targets() -> list[Target]:
    """Return the targets of the Makefile, with their descriptions."""
    found = re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [Target(f"make {name}", about) for name, about in found]


def reference() -> str:
    """Return the page."""
    parts = [_HEAD, "\n## make\n\n| Command | Description |\n|---|---|\n"]
    parts += [f"| `{target.words}` | {target.about} |\n" for target in targets()]
    parts += [_of_a_module(name, typer.main.get_command(app)) for name, app in _MODULES.items()]
    parts.append("\n## multislice\n")
    parts += map(_section, commands())
    return "".join(parts)


def _below(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, (*path, name))
    if not hasattr(command, "commands") and not command.hidden:
        yield Command(" ".join(path), one_line(command.help), tuple(command.params))


def _section(command: Command) -> str:
    arguments = [each for each in command.parameters if each.param_type_name == "argument"]
    options = [each for each in command.parameters if each.param_type_name == "option"]
    usage = " ".join(["multislice", command.words, *map(_in_usage, arguments), *map(_in_usage, options)])
    about = f"{command.about}\n\n```text\n{usage}\n```\n"
    return f"\n### multislice {command.words}\n\n{about}\n{_table([*arguments, *options])}"


def _of_a_module(name: str, command: Any) -> str:
    given = f"Pass options in `ARGS`, such as `make {name} ARGS=--help`:"
    return f"\n### make {name}\n\n{one_line(command.help)}\n\n{given}\n\n{_table(command.params)}"


def _table(parameters: Iterable[Any]) -> str:
    return _COLUMNS + "".join(map(_row, parameters))


def _in_usage(parameter: Any) -> str:
    words = _names(parameter)[0] + _value(parameter)
    return words if parameter.required else f"[{words}]"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in _names(parameter))
    value = f" `{_value(parameter).strip()}`" if _value(parameter) else ""
    return f"| {names}{value} | {_default(parameter)} | {one_line(parameter.help).replace('|', '\\|')} |\n"


def _names(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [(parameter.metavar or parameter.name).upper()]
    return sorted([*parameter.opts, *parameter.secondary_opts], key=len, reverse=True)


def _value(parameter: Any) -> str:
    """Return the choices of an option, or a word for its value."""
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return f" {{{','.join(kind)}}}"
    if get_origin(kind) is Literal:
        return f" {{{','.join(get_args(kind))}}}"
    return f" {parameter.metavar or parameter.name.upper()}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(shown := getattr(parameter, "show_default", None), str):
        return shown
    default = parameter.default
    if default is None or default is False or callable(default):
        return ""
    shown = default.value if isinstance(default, enum.Enum) else default
    return f"`{shown}`".replace(f"{ROOT}/", "")

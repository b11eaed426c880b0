"""Finds a stack's settings file and reads it before anything starts.

What settings mean and which are valid is `infra.settings`' affair.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from cli.halt import Halt
from sandbox.daemon import CHECKOUT

if TYPE_CHECKING:
    from infra.settings import Settings

FOLDER = CHECKOUT / "stacks"
"""Of the settings files."""
PREFIX = "tpu-multislice:"
"""Of the program's own keys below `config`."""
_ADVICE = "Nothing was started. Repair the file and run the command again"


class _StackFile(BaseModel):
    config: dict[str, object]


def names(folder: Path | None = None) -> list[str]:
    """The stacks that have a settings file, in the checkout's folder unless another one is meant."""
    return sorted(stack_name(path) for path in (folder or FOLDER).glob("Pulumi.*.yaml"))


def find(stack: str, folder: Path | None = None) -> Path:
    """The settings file of `stack`.

    Raises:
        Halt: there is none; the message lists the stacks there are.
    """
    folder = folder or FOLDER
    path = folder / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        choice = ", ".join(names(folder))
        raise Halt(f"--stack must name a file {folder}/Pulumi.STACK.yaml, got {stack!r}; choose one of: {choice}")
    return path


def stack_name(path: Path) -> str:
    """The stack that the file `Pulumi.STACK.yaml` is for."""
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """The program's own values of a stack file's `config`, by section."""
    return {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}


def read(path: Path) -> "Settings":
    """The settings, as the program will read them.

    Raises:
        Halt: they are wrong; the message names every fault.
    """
    # Imports Pulumi's SDK, which takes a second; `make down` does without it.
    from infra.hidden import of_file
    from infra.settings import SettingsError, parse

    try:
        config = _StackFile.model_validate(_content(path)).config
        return parse({name: of_file(value) for name, value in sections(config).items()})
    except RecursionError:
        raise Halt(f"{path} must be YAML, got mappings or lists without end in each other\n{_ADVICE}") from None
    except SettingsError as error:
        raise Halt(f"{path}: {error}\n{_ADVICE}") from None
    except ValueError as error:
        raise Halt(f"{path} must be YAML with a mapping `config`, got: {error}\n{_ADVICE}") from None


def _content(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, LookupError, AttributeError) as error:
        # PyYAML looks up and takes apart what a tag such as `!!int` promises without asking whether it is there.
        raise ValueError(error) from None

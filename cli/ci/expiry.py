"""Which ephemeral environments have expired, and what of them is left after their destroy.

Asks `multislice env list --expired`; destroying is `multislice env destroy`, one job for each.
"""

import json
import subprocess
import sys
from typing import cast

from cli.halt import Halt

_LIST = (sys.executable, "-m", "cli.multislice", "env", "list", "--expired", "--json")


def expired() -> list[str]:
    """Names of the environments that have expired and are still there.

    Raises:
        Halt: they cannot be listed.
    """
    listed = subprocess.run(_LIST, stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode:
        raise Halt("the expired environments could not be listed; the message stands above", listed.returncode)
    return [cast("str", environment["name"]) for environment in json.loads(listed.stdout)]


def require_none_left(names: list[str]) -> None:
    """That nothing has expired and is still there.

    Raises:
        Halt: something is; the message names it and the command that destroys it.
    """
    if names:
        commands = "\n".join(f"  python -m cli.multislice env destroy {name}" for name in names)
        raise Halt(
            f"expected no expired environment, got {len(names)}, which still cost money. Destroy them:\n{commands}"
        )

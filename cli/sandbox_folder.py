"""The folder of the sandbox that a command works on.

Owns its default and the look whether there is one. What lies in it is `sandbox.site`'s affair.
"""

from pathlib import Path

from cli.halt import Halt
from sandbox.site import Site, load

SANDBOX = Path(".sandbox")
"""Unless another one is asked for."""


def existing(root: Path) -> Site:
    """The sandbox in `root`.

    Raises:
        Halt: there is none.
    """
    if not (root / "site.json").exists():
        raise Halt(f"expected a sandbox in the folder {root}, found none; `make up` makes one")
    return load(root)

"""The bill of materials of the image's lock: CycloneDX, with hashes and licences, the same for the same lock.

`cyclonedx-py` makes it of the lock; the licences are `cli.ci.licences`', since a lock has none. What lies in the
image below Python is the base image's, and not in it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.ci.licences import CHECKOUT, Licences, licence_of
from cli.halt import Halt

_TOOL = (
    sys.executable,
    "-m",
    "cyclonedx_py",
    "requirements",
    "--output-reproducible",
    "--short-PURLs",
    "--no-validate",
)
_PROJECT = ("--pyproject", str(CHECKOUT / "pyproject.toml"))


def bill_of_materials(lock: Path, known: Licences) -> str:
    """As JSON, without time and serial number, so that it changes with the lock alone.

    Raises:
        Halt: the tool refuses the lock.
    """
    made = subprocess.run([*_TOOL, *_PROJECT, str(lock)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise Halt(f"cyclonedx-py refuses {lock}:\n{made.stderr.strip()}\nmake the lock anew: make lock")
    bill = json.loads(made.stdout)
    bill["components"] = [_described(component, known) for component in bill["components"]]
    # A lock does not tell which package needs which.
    del bill["dependencies"]
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _described(component: dict[str, Any], known: Licences) -> dict[str, Any]:
    # The tool names and describes a component by its line in the lock, another one after every change above it.
    kept = {key: value for key, value in component.items() if key != "description"} | {"bom-ref": component["purl"]}
    licence = licence_of(component["name"], known)
    return kept if licence is None else {**kept, "licenses": [{"expression": licence}]}

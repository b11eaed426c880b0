"""Checks the licence of every package in the image, and writes the image's bill of materials.

Licences come from the metadata of installed packages. `requirements/licences.yaml` has the allowed ones, and the
licences that a person has read for packages without one in their metadata.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import yaml

from cli.answer import Halt
from infra.project import CHECKOUT
from workloads.spec import Spec

IMAGE_LOCK = CHECKOUT / "requirements" / "image.txt"
_LICENCES = CHECKOUT / "requirements" / "licences.yaml"
_CLASSIFIER = "License :: "
_BILL = (
    *(sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--short-PURLs", "--no-validate"),
    *("--pyproject", str(CHECKOUT / "pyproject.toml")),
)


class Licences(Spec):
    """The file of licences."""

    allowed: frozenset[str]
    """Allowed SPDX identifiers."""
    spoken: Mapping[str, str]
    """SPDX identifiers by the names that packages use for them."""
    read: Mapping[str, str]
    """SPDX expressions by package, which a person has read in the licence file."""


def licences() -> Licences:
    """Return the repository's file of licences."""
    return Licences.model_validate(yaml.safe_load(_LICENCES.read_text()))


def declared_project(checkout: Path) -> dict[str, Any]:
    """Return the table `project` of `pyproject.toml`."""
    return tomllib.loads((checkout / "pyproject.toml").read_text())["project"]


def own_licence(checkout: Path, known: Licences) -> str:
    """Return the licence of the project from its `pyproject.toml`. Raise Halt if it is missing or not allowed."""
    stated, text = declared_project(checkout).get("license"), checkout / "LICENSE"
    if stated is None or not is_allowed(stated, known.allowed):
        raise Halt(
            f"pyproject.toml: expected project.license to be one of {', '.join(sorted(known.allowed))}, got {stated}"
        )
    if not text.is_file():
        raise Halt(f"expected the text of {stated} in {text}, found no such file; restore it")
    return stated


def locked(lock: Path) -> list[str]:
    """Return the names of the packages in a lock file."""
    return re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE)


def licence_of(package: str, known: Licences) -> str | None:
    """Return the SPDX expression of an installed package. None: unknown."""
    if package in known.read:
        return known.read[package]
    try:
        # The metadata of a package is an email header, but its published type differs.
        return _stated(cast("Message", metadata.metadata(package)), known)
    except metadata.PackageNotFoundError:
        return None


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Return whether an SPDX expression without brackets allows a choice of only allowed licences."""
    return any(all(part in allowed for part in choice.split(" AND ")) for choice in expression.split(" OR "))


def require_allowed(packages: Iterable[str], known: Licences) -> int:
    """Return the number of packages. Raise Halt with all packages whose licence is unknown or not allowed."""
    found = {package: licence_of(package, known) for package in packages}
    errors = [
        f"{package}: {licence or 'no licence in its metadata'}"
        for package, licence in found.items()
        if licence is None or not is_allowed(licence, known.allowed)
    ]
    errors += [f"{package}: listed under `read`, but in no lock; remove it" for package in known.read.keys() - found]
    if errors:
        raise Halt(
            "expected a licence of requirements/licences.yaml for each package of the image, got\n  "
            + "\n  ".join(sorted(errors))
            + "\nRead the package's licence file. Then allow the licence there, or remove the package"
        )
    return len(found)


def bill_of_materials(lock: Path, known: Licences) -> str:
    """Return the bill of materials of a lock file as CycloneDX JSON, with hashes and licences.

    It has no time and no serial number, so it changes only with the lock file. `cyclonedx-py` creates it without
    licences, which are added here. It does not include packages of the base image. Raise Halt if the tool refuses the
    lock file.
    """
    made = subprocess.run([*_BILL, str(lock)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise Halt(f"cyclonedx-py refuses {lock}:\n{made.stderr.strip()}\nMake the lock again: make lock")
    bill = json.loads(made.stdout)
    for component in bill["components"]:
        # The tool names and describes a component by its line in the lock file, which changes with any line above it.
        component.pop("description", None)
        component["bom-ref"] = component["purl"]
        if licence := licence_of(component["name"], known):
            component["licenses"] = [{"expression": licence}]
    # A lock file does not have the dependencies between packages.
    del bill["dependencies"]
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _stated(header: Message, known: Licences) -> str | None:
    if expression := header.get("License-Expression"):
        return expression
    licence = known.spoken.get(header.get("License", ""), header.get("License", ""))
    if licence and is_allowed(licence, known.allowed):
        return licence
    classifiers = [entry for entry in header.get_all("Classifier", []) if entry.startswith(_CLASSIFIER)]
    spoken = [known.spoken.get(entry.split(" :: ")[-1]) for entry in classifiers]
    named = [licence for licence in spoken if licence is not None]
    return " AND ".join(named) if named and len(named) == len(spoken) else None

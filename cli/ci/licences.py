"""The licence of every package that the image ships, whether it is allowed, and the image's bill of materials.

Licences are read from the metadata of installed packages. `requirements/licences.yaml` says which ones are allowed,
and which licence a person read where the metadata has none.
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

from cli.halt import Halt
from workloads.spec import Spec

CHECKOUT = Path(__file__).parent.parent.parent
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
    """SPDX identifiers."""
    spoken: Mapping[str, str]
    """SPDX identifiers by the names that packages use."""
    read: Mapping[str, str]
    """SPDX expressions by package, as a person read them in the licence file."""


def licences() -> Licences:
    """Return the repository's file of licences."""
    return Licences.model_validate(yaml.safe_load(_LICENCES.read_text()))


def own_licence(checkout: Path, known: Licences) -> str:
    """Return the licence of the project itself, as its `pyproject.toml` states it.

    Raises:
        Halt: it states none or one that is not allowed, or there is no file `LICENSE` next to it.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    stated, text = project.get("license"), checkout / "LICENSE"
    if stated is None or not is_allowed(stated, known.allowed):
        raise Halt(
            f"pyproject.toml: expected project.license to be one of {', '.join(sorted(known.allowed))}, got {stated}"
        )
    if not text.is_file():
        raise Halt(f"expected the text of {stated} in {text}, found no such file; restore it")
    return stated


def locked(lock: Path) -> list[str]:
    """Return the names of the packages of a lock."""
    return re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE)


def licence_of(package: str, known: Licences) -> str | None:
    """Return the SPDX expression of an installed package; None if it is unknown."""
    if package in known.read:
        return known.read[package]
    try:
        # The metadata of a package is the header of an email, which its published type does not say.
        return _stated(cast("Message", metadata.metadata(package)), known)
    except metadata.PackageNotFoundError:
        return None


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Return whether an SPDX expression without brackets leaves a choice of licences that are all allowed."""
    return any(all(part in allowed for part in choice.split(" AND ")) for choice in expression.split(" OR "))


def require_allowed(packages: Iterable[str], known: Licences) -> int:
    """Check that each package has a licence that is allowed, and return the number of packages.

    Raises:
        Halt: some have not; lists each with its licence.
    """
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
            + "\nRead the package's licence file; then allow the licence there, or do without the package"
        )
    return len(found)


def bill_of_materials(lock: Path, known: Licences) -> str:
    """Return the bill of materials of a lock: CycloneDX as JSON, with hashes and licences.

    It has no time and no serial number, so it changes only with the lock. `cyclonedx-py` makes it; licences are added
    here, because a lock has none. Packages of the base image are not in it.

    Raises:
        Halt: the tool refuses the lock.
    """
    made = subprocess.run([*_BILL, str(lock)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise Halt(f"cyclonedx-py refuses {lock}:\n{made.stderr.strip()}\nMake the lock again: make lock")
    bill = json.loads(made.stdout)
    bill["components"] = [_component(each, known) for each in bill["components"]]
    # A lock does not say which package needs which.
    del bill["dependencies"]
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _component(component: dict[str, Any], known: Licences) -> dict[str, Any]:
    # The tool names and describes a component by its line in the lock, which any change above it moves.
    kept = {key: value for key, value in component.items() if key != "description"} | {"bom-ref": component["purl"]}
    licence = licence_of(component["name"], known)
    return kept if licence is None else {**kept, "licenses": [{"expression": licence}]}


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

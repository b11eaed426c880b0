"""The licence of every package that the image ships, and whether it may.

What a package says of itself is read from its installed metadata; what may be shipped, and what a person read where
the metadata does not tell, stands in `requirements/licences.yaml`.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import cast

import yaml

from cli.halt import Halt
from workloads.spec import Spec

CHECKOUT = Path(__file__).parent.parent.parent
IMAGE_LOCK = CHECKOUT / "requirements" / "image.txt"
_LICENCES = CHECKOUT / "requirements" / "licences.yaml"
_CLASSIFIER = "License :: "


class Licences(Spec):
    """What the file of licences says."""

    allowed: frozenset[str]
    spoken: Mapping[str, str]
    """What packages say, in SPDX's words."""
    read: Mapping[str, str]
    """By package."""


def licences() -> Licences:
    """Of the repository."""
    return Licences.model_validate(yaml.safe_load(_LICENCES.read_text()))


def own_licence(checkout: Path, known: Licences) -> str:
    """The licence of the project itself, as its `pyproject.toml` states it.

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
    """Names of the packages of a lock."""
    return re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE)


def licence_of(package: str, known: Licences) -> str | None:
    """SPDX expression of an installed package; None when nobody can tell."""
    if package in known.read:
        return known.read[package]
    try:
        # The metadata of a package is an email's header, which its published type does not say.
        return _stated(cast("Message", metadata.metadata(package)), known)
    except metadata.PackageNotFoundError:
        return None


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Whether all that must be kept of an SPDX expression without brackets may be."""
    return any(all(part in allowed for part in choice.split(" AND ")) for choice in expression.split(" OR "))


def require_allowed(packages: Iterable[str], known: Licences) -> int:
    """How many packages there are, each under a licence that is allowed.

    Raises:
        Halt: some are not; the message names each with its licence.
    """
    found = {package: licence_of(package, known) for package in packages}
    faults = [_fault(package, licence) for package, licence in found.items() if not _passes(licence, known)]
    faults += [
        f"{package}: stands under `read`, and no lock names it; remove it" for package in known.read.keys() - found
    ]
    if faults:
        raise Halt(
            "expected a licence of requirements/licences.yaml for each package of the image, got\n  "
            + "\n  ".join(sorted(faults))
            + "\nRead the package's licence file; then allow the licence there, or do without the package"
        )
    return len(found)


def _stated(header: Message, known: Licences) -> str | None:
    if expression := header.get("License-Expression"):
        return expression
    licence = known.spoken.get(header.get("License", ""), header.get("License", ""))
    if licence and is_allowed(licence, known.allowed):
        return licence
    classifiers = [entry for entry in header.get_all("Classifier", []) if entry.startswith(_CLASSIFIER)]
    spoken = [known.spoken.get(entry.split(" :: ")[-1]) for entry in classifiers]
    told = [licence for licence in spoken if licence is not None]
    return " AND ".join(told) if told and len(told) == len(spoken) else None


def _passes(licence: str | None, known: Licences) -> bool:
    return licence is not None and is_allowed(licence, known.allowed)


def _fault(package: str, licence: str | None) -> str:
    return f"{package}: {'no licence that its metadata tells' if licence is None else licence}"

import json
import re
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from cli.answer import Halt
from cli.ci.licences import (
    CHECKOUT,
    IMAGE_LOCK,
    Licences,
    bill_of_materials,
    is_allowed,
    licence_of,
    licences,
    locked,
    own_licence,
    require_allowed,
)

KNOWN = Licences(allowed=frozenset({"MIT", "Apache-2.0"}), spoken={"Apache Software License": "Apache-2.0"}, read={})


def installed(folder: Path, name: str, *lines: str) -> None:
    made = folder / f"{name}-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(
        "\n".join([f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0", *lines, "", "text"])
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_package_of_the_image_has_a_licence_that_is_allowed() -> None:
    packages = locked(IMAGE_LOCK)
    assert {"jax", "libtpu", "scipy"} <= set(packages)
    assert require_allowed(packages, licences()) == len(packages)


def test_the_project_has_a_licence_and_its_text() -> None:
    assert own_licence(CHECKOUT, licences()) == "Apache-2.0"


@pytest.mark.parametrize(
    ("stated", "text", "says"),
    [
        ("", True, "got None"),
        ('license = "SSPL-1.0"', True, "got SSPL-1.0"),
        ('license = "MIT"', False, "no such file"),
    ],
)
def test_a_project_without_a_usable_licence_is_refused(tmp_path: Path, stated: str, text: bool, says: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{stated}\n")
    if text:
        (tmp_path / "LICENSE").touch()
    with pytest.raises(Halt, match=says):
        own_licence(tmp_path, KNOWN)


def test_every_allowed_licence_is_somebodys() -> None:
    known = licences()
    found = " AND ".join(licence_of(package, known) or "" for package in locked(IMAGE_LOCK))
    used = {part for choice in found.split(" OR ") for part in choice.split(" AND ")}
    assert known.allowed <= used


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND Apache-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", False),
    ],
)
def test_of_a_choice_one_must_be_allowed_and_of_several_all(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, KNOWN.allowed) is allowed


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        (["License-Expression: MIT AND 0BSD", "License: Apache"], "MIT AND 0BSD"),
        (["License: MIT", "Classifier: License :: OSI Approved :: Apache Software License"], "MIT"),
        (["License: see file", "Classifier: License :: OSI Approved :: Apache Software License"], "Apache-2.0"),
        (["Classifier: License :: OSI Approved :: Apache Software License", "Classifier: License :: Odd"], None),
        (["License: see file"], None),
    ],
)
def test_what_a_package_states_is_read_in_the_words_of_spdx(site: Path, lines: list[str], licence: str | None) -> None:
    installed(site, "stated", *lines)
    assert licence_of("stated", KNOWN) == licence


def test_a_licence_that_is_not_allowed_is_reported_with_the_package_and_the_file(site: Path) -> None:
    installed(site, "copyleft", "License-Expression: AGPL-3.0-only")
    with pytest.raises(Halt, match=r"licences\.yaml.*\n  copyleft: AGPL-3\.0-only\n.*allow the licence there"):
        require_allowed(["copyleft"], KNOWN)


def test_a_package_that_is_not_installed_is_not_taken_for_allowed() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("no-such-package")
    with pytest.raises(Halt, match="no-such-package: no licence"):
        require_allowed(["no-such-package"], KNOWN)


def test_what_was_read_of_a_package_that_is_gone_is_reported() -> None:
    gone = KNOWN.model_copy(update={"read": {"gone": "MIT"}})
    with pytest.raises(Halt, match="gone: listed under `read`, but in no lock"):
        require_allowed([], gone)


def test_the_bill_names_every_package_of_the_lock_with_its_hashes_and_licence_and_nothing_of_today(
    tmp_path: Path,
) -> None:
    entries = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", IMAGE_LOCK.read_text(), re.MULTILINE)
    lock = tmp_path / "image.txt"
    chosen = [entry for entry in entries if entry.startswith(("jax==", "libtpu==", "numpy=="))]
    lock.write_text("".join(chosen))

    text = bill_of_materials(lock, licences())

    bill = json.loads(text)
    assert {component["name"] for component in bill["components"]} == {"jax", "libtpu", "numpy"}
    for entry, component in zip(chosen, bill["components"], strict=True):
        hashes = [found["content"] for found in component["externalReferences"][0]["hashes"]]
        assert hashes == re.findall(r"sha256:([0-9a-f]{64})", entry)
        assert component["licenses"][0]["expression"]
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    lock.write_text("\n\n" + lock.read_text())
    assert bill_of_materials(lock, licences()) == text


def test_a_lock_that_is_none_is_refused_with_the_way_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(Halt, match="cyclonedx-py refuses .*missing.txt(.|\n)*make lock"):
        bill_of_materials(tmp_path / "missing.txt", licences())

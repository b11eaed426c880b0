import json
import re
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from cli.ci.licences import IMAGE_LOCK, licences
from cli.ci.sbom import bill_of_materials
from cli.halt import Halt


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
        hashes = [told["content"] for told in component["externalReferences"][0]["hashes"]]
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

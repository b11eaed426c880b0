"""Policy files for tests that run the policy pack, which goes by today's date."""

import json
from pathlib import Path


def without_expiry(policy_file: Path, folder: Path) -> Path:
    """Copy the policy file into the folder, with exceptions that never expire, and return the copy."""
    rules = json.loads(policy_file.read_text())
    for exception in (exception for rule in rules.values() for exception in rule.get("exceptions", [])):
        exception["expires_on"] = "9999-12-31"
    copy = folder / policy_file.name
    copy.write_text(json.dumps(rules))
    return copy

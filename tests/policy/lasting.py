"""Policy files for tests that run the policy pack, which uses today's date."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from policy.exceptions import MAX_LIFETIME


def counting() -> str:
    """The last day of an exception that counts today, whatever day it is, and does not end soon."""
    return str((datetime.now(UTC) + MAX_LIFETIME - timedelta(days=30)).date())


def without_expiry(policy_file: Path, folder: Path) -> Path:
    """Copy the policy file into the folder, with exceptions that all count today, and return the copy."""
    rules = json.loads(policy_file.read_text())
    for exception in (exception for rule in rules.values() for exception in rule.get("exceptions", [])):
        exception["expires_on"] = counting()
    copy = folder / policy_file.name
    copy.write_text(json.dumps(rules))
    return copy

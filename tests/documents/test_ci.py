"""docs/how-to/ci.md names every workflow."""

import re

from tests.ci.test_workflows import ROOT, WORKFLOWS

DOCUMENT = (ROOT / "docs" / "how-to" / "ci.md").read_text()


def test_every_workflow_is_in_the_table_with_when_it_runs() -> None:
    told = dict(re.findall(r"^\| `(\w+\.yml)` \| (.+?) \|", DOCUMENT, re.MULTILINE))
    assert told.keys() == {path.name for path in WORKFLOWS}
    nightly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \d+ \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every night" in when} == nightly
    hourly = {path.name for path in WORKFLOWS if re.search(r'cron: "\d+ \* \* \* \*"', path.read_text())}
    assert {name for name, when in told.items() if "every hour" in when} == hourly

import json
from pathlib import Path
from typing import Any

import pytest

from multislice.errors import host_failure
from workloads.call.folder import CallFolder
from workloads.spec import ExitCode

RECORD = {"host": "host-1", "code": 24, "cause": "it hangs", "details": ["stack"], "time": 2.0, "elsewhere": False}
LATER = {**RECORD, "host": "host-2", "time": 3.0}
HEARD = {**RECORD, "host": "host-0", "time": 1.0, "elsewhere": True}
LOST = {**RECORD, "host": "host-0", "code": ExitCode.PEER_LOST, "time": 1.0}
NO_RECORDS = ("", "\xff", [1], {"elsewhere": False})


@pytest.mark.parametrize(
    ("records", "reported"),
    [
        pytest.param((), None, id="without a record nothing is reported"),
        pytest.param(NO_RECORDS, None, id="what is no record is passed over"),
        pytest.param((LATER, RECORD, HEARD), "host host-1 ended (HANG): it hangs\nstack", id="the first own failure"),
        pytest.param((LOST, RECORD), "host host-1 ended (HANG): it hangs\nstack", id="not who lost another host"),
        pytest.param(({**RECORD, "code": 99},), "host host-1 ended (99): it hangs\nstack", id="an unknown code"),
        pytest.param(
            ({**RECORD, "cause": "\x1b[2Jgone", "details": ["\x9b2J"]},),
            "host host-1 ended (HANG): \N{SYMBOL FOR ESCAPE}[2Jgone\n\ufffd2J",
            id="nothing is done to the terminal",
        ),
    ],
)
def test_the_host_that_failed_by_itself_is_reported(tmp_path: Path, records: Any, reported: str | None) -> None:
    folder = CallFolder.at(str(tmp_path))
    for number, record in enumerate(records):
        content = record.encode("latin-1") if isinstance(record, str) else json.dumps(record).encode()
        folder.write(f"failures/run/{number}.json", content)
    assert host_failure(folder) == reported

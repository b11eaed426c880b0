import json
from pathlib import Path

from multislice.outcome import host_failure
from workloads.call.folder import CallFolder
from workloads.spec import ExitCode

RECORD = {"host": "host-1", "code": 24, "cause": "it hangs", "details": ["stack"], "time": 2.0, "elsewhere": False}


def test_the_first_hosts_own_failure_is_reported(tmp_path: Path) -> None:
    folder = CallFolder.at(str(tmp_path))
    assert host_failure(folder) is None
    later = {**RECORD, "host": "host-2", "time": 3.0}
    heard = {**RECORD, "host": "host-0", "time": 1.0, "elsewhere": True}
    for number, record in enumerate((later, RECORD, heard)):
        folder.write(f"failures/run/{number}.json", json.dumps(record).encode())
    assert host_failure(folder) == f"host host-1 ended ({ExitCode(24).name}): it hangs\nstack"


def test_a_host_that_lost_another_one_is_not_reported_as_the_cause(tmp_path: Path) -> None:
    folder = CallFolder.at(str(tmp_path))
    lost = {**RECORD, "host": "host-0", "code": ExitCode.PEER_LOST, "time": 1.0}
    for number, record in enumerate((lost, RECORD)):
        folder.write(f"failures/run/{number}.json", json.dumps(record).encode())
    assert (host_failure(folder) or "").startswith("host host-1 ended")


def test_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    folder = CallFolder.at(str(tmp_path))
    for number, content in enumerate((b"", b"\xff", b"[1]", b'{"elsewhere": false}')):
        folder.write(f"failures/run/{number}.json", content)
    assert host_failure(folder) is None
    folder.write("failures/run/9.json", json.dumps({**RECORD, "code": 99}).encode())
    assert (host_failure(folder) or "").startswith("host host-1 ended (99)")


def test_a_record_does_nothing_to_the_terminal_that_shows_it(tmp_path: Path) -> None:
    folder = CallFolder.at(str(tmp_path))
    folder.write("failures/run/0.json", json.dumps({**RECORD, "cause": "\x1b[2Jgone", "details": ["\x9b2J"]}).encode())
    assert host_failure(folder) == f"host host-1 ended ({ExitCode(24).name}): \N{SYMBOL FOR ESCAPE}[2Jgone\n\ufffd2J"

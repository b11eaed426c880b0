import io
import json
from pathlib import Path

from rich.console import Console

from cli.explain.command import command
from tests.cli.api_objects import WORKLOADS
from tests.cli.api_server import playing
from tests.cli.standing import running, stack, waiting


def told(folder: Path, *, as_json: bool) -> str:
    shown = Console(file=io.StringIO(), width=20, highlight=False)
    with playing(running()) as server:
        server.collections[WORKLOADS] = [waiting("tiny")]
        assert command(stack(server, folder), None, shown, json=as_json) == 0
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_a_waiting_job_is_explained_with_a_command_on_one_line(tmp_path: Path) -> None:
    lines = told(tmp_path, as_json=False).splitlines()
    assert lines[0] == "tiny  queued"
    assert lines[2].startswith("The job asks for 0 chips and 16 of them are taken. It is number 1 in line.  since ")
    assert "  -> let it go first: raise its `priority` in the stack file of dev, then `pulumi up`" in [
        line.rstrip() for line in lines
    ]


def test_as_json_each_finding_has_its_cause(tmp_path: Path) -> None:
    answer = json.loads(told(tmp_path, as_json=True))
    assert (answer["job"], answer["state"]) == ("tiny", "queued")
    assert [finding["cause"] for finding in answer["findings"]] == ["quota taken"]

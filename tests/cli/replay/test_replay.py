"""`multislice replay` through the command line, on stack files and on a played cluster."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from tests.cli.api_server import Played, playing
from tests.cli.rehearse.clusters import cluster, kubeconfig, node, workload, xpk
from tests.infra.recording import ROOT
from tests.infra.review.known import own

_STREAM = {"hours": {"median": 1, "p90": 2}, "jobs_per_day": 5, "shape": "4x4x4", "team": "evaluation"}
_HEAD = "name,submitted,team,shape,slices,hours,priority,save_minutes"


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stack prod, and `shared`, in which evaluation may borrow."""
    for name, limit in (("prod", 0), ("shared", 64)):
        config = {f"tpu-multislice:{section}": value for section, value in own("prod").items()}
        config["tpu-multislice:teams"]["evaluation"]["quota"]["cubes"]["borrowing_limit"] = limit
        (tmp_path / f"Pulumi.{name}.yaml").write_text(json.dumps({"config": config}))
    monkeypatch.setattr("cli.stack_file.stacks_folder", lambda: tmp_path)
    return tmp_path


def _run(*words: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, words)], env={"COLUMNS": "120"})


def _csv(folder: Path, *rows: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([_HEAD, *rows]))
    return path


def _waits(answer: Any) -> list[float]:
    return [each["waits"][0]["max"] for each in answer["replays"]]


def test_two_stacks_are_compared_in_columns_and_on_a_page(stacks: Path) -> None:
    trace = _csv(stacks, "one,0,evaluation,4x4x4,1,5,,", "two,1,evaluation,v5p-128,1,5,,")
    words = (trace, "-s", "prod", "--against", "shared")
    found = json.loads(_run(*words, "-o", "json").stdout)
    assert _waits(found) == [4, 0]
    assert [each["fleet"] for each in found["replays"]] == ["prod", "shared"]
    page = stacks / "page.html"
    shown = _run(*words, "--page", page)
    assert shown.exit_code == 0
    assert "4.0 h" in shown.stdout
    assert page.read_text().count("<svg") == 3
    assert "| wait, longest | 4.0 h | 0 min |" in _run(*words, "-o", "markdown").stdout


def test_interruptions_of_spot_are_said_to_be_left_out(stacks: Path) -> None:
    prod, spot = stacks / "Pulumi.prod.yaml", stacks / "Pulumi.spot.yaml"
    content = json.loads(prod.read_text())
    content["config"]["tpu-multislice:slices"]["cubes"]["capacity"] = "spot"
    spot.write_text(json.dumps(content))
    trace = _csv(stacks, "one,0,evaluation,4x4x4,1,5,,")
    for words in ((), ("--search", "spares=0")):
        assert ["of spot" in _run(trace, "-s", stack, *words).output for stack in ("prod", "spot")] == [False, True]


def test_two_files_of_one_name_are_before_and_after_on_the_page(stacks: Path) -> None:
    other = stacks / "new" / "Pulumi.prod.yaml"
    other.parent.mkdir()
    other.write_text((stacks / "Pulumi.prod.yaml").read_text())
    page = stacks / "page.html"
    _run(_csv(stacks, "one,0,evaluation,4x4x4,1,5,,"), "-s", "prod", "--against", other, "--page", page)
    assert all(f"<h2>{name}: " in page.read_text() for name in ("before", "after"))


@pytest.mark.parametrize("option", ["--page", "--save-trace"])
def test_a_file_that_cannot_be_written_is_named(option: str, stacks: Path) -> None:
    found = _run(_csv(stacks, "one,0,evaluation,4x4x4,1,5,,"), "-s", "prod", option, stacks / "none" / "file")
    assert (found.exit_code, str(stacks / "none") in found.output.replace("\n", "")) == (1, True)


def test_the_best_values_within_bounds_are_changes_of_the_stack_file(stacks: Path) -> None:
    rows = [f"j{index},0,evaluation,4x4x4,1,9,," for index in range(3)]
    path = "teams.evaluation.quota.cubes.borrowing_limit"
    words = (_csv(stacks, *rows), "-s", "prod", "--search", f"{path}=0,64,none", "-o", "json", "--p90-hours")
    found = _run(*words, 1)
    answer = json.loads(found.stdout)
    assert (found.exit_code, answer["tried"], answer["possible"]) == (0, 3, 3)
    assert answer["best"][0]["changes"] == {path: [0, None]}
    assert _run(*words, 0, "--search", "teams.evaluation.quota.cubes=0").exit_code == 0
    assert _run(*words[:-3], "-o", "json", "--search", "colour=1").exit_code == 1


def test_a_starved_job_is_named_and_changes_the_exit_status(stacks: Path) -> None:
    found = _run(_csv(stacks, "large,0,evaluation,cubes,9,5,,"), "-s", "prod", "-o", "json")
    assert found.exit_code == 2
    assert [each["name"] for each in json.loads(found.stdout)["replays"][0]["starved"]] == ["large"]


def test_drawn_jobs_are_saved_as_the_same_trace(stacks: Path) -> None:
    (stacks / "draw.yaml").write_text(yaml.safe_dump({"days": 3.3, "jobs": [_STREAM]}))
    saved = stacks / "saved.csv"
    first = _run(stacks / "draw.yaml", "-s", "prod", "--save-trace", saved, "-o", "json")
    again = _run(saved, "-s", "prod", "-o", "json")
    assert json.loads(first.stdout)["replays"] == json.loads(again.stdout)["replays"]


def test_the_examples_of_the_guide_hold_on_the_stack_that_they_name(
    stacks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stacks)
    guide = (ROOT / "docs" / "how-to" / "replay.md").read_text()
    (drawn,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (search,) = re.findall(r"multislice replay (trace.csv [^`]*--search[^`]*)```", guide)
    Path("draw.yaml").write_text(drawn)
    saved = _run("draw.yaml", "-s", "prod", "--save-trace", "trace.csv")
    assert saved.exit_code in {0, 2}, saved.output
    found = _run(*shlex.split(search.replace("\\\n", "")))
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("bad.yaml", "jobs:\n- {team: a, shape: 4x4, hours: {median: -1, p90: 2}}\n", ["bad.yaml:2: ", "3 errors"]),
        ("bad.yaml", yaml.safe_dump({"days": 3, "jobs": [_STREAM | {"team": "nobody"}]}, sort_keys=False),
         ["bad.yaml:8: jobs.0.team: expected one of evaluation", "1 error in"]),
        ("bad.json", "[]", ["bad.json:1: ", "no `items`"]),
        ("bad.json", "{", ["bad.json:1: "]),
        ("bad.csv", f"{_HEAD}\nx,-1,nobody,4x4x4,1,99,,\n", ["bad.csv:2: submitted", "bad.csv:2: team", "2 errors in"]),
        ("bad.csv", f"{_HEAD}\nx,1,nobody,4x4x4,1,9,,\n", ["bad.csv:2: team: expected one of evaluation, finetuning"]),
        ("bad.txt", "", [".csv, .json or .yaml"]),
    ],
)  # fmt: skip
def test_bad_traces_are_refused_with_row_and_reason(
    name: str, content: str, expected: Sequence[str], stacks: Path
) -> None:
    (stacks / name).write_text(content)
    found = _run(stacks / name, "-s", "prod")
    assert found.exit_code == 1
    assert all(each in found.output for each in expected), found.output


def test_a_hundred_megabytes_of_json_are_refused_at_once(stacks: Path) -> None:
    with (stacks / "large.json").open("wb") as file:
        file.truncate(100 << 20)
    found = _run(stacks / "large.json", "-s", "prod")
    assert (found.exit_code, "100 MiB" in found.output) == (1, True)


@pytest.mark.parametrize(
    ("option", "value"),
    [*(("--failures-per-day", value) for value in ("inf", "nan", "1e9")), ("--days", "nan"), ("--lead-minutes", "nan")],
)
def test_numbers_without_end_or_value_are_refused(option: str, value: str, stacks: Path) -> None:
    found = _run(_csv(stacks, "one,0,evaluation,4x4x4,1,5,,"), "-s", "prod", option, value)
    assert (found.exit_code, option in found.output) == (1, True)


@pytest.mark.parametrize("words", [("--page", "page.html", "--search", "spares=0..1"), ("--p90-hours", "4")])
def test_options_that_would_have_no_effect_are_refused(words: Sequence[str], stacks: Path) -> None:
    found = _run(_csv(stacks, "one,0,evaluation,4x4x4,1,5,,"), "-s", "prod", *words)
    assert (found.exit_code, all(each in found.output for each in (words[0], "--search"))) == (1, True)


@pytest.fixture
def on_cluster(tmp_path: Path) -> Callable[..., Result]:
    def command(played: Played, *words: object) -> Result:
        with playing(played):
            return _run(*words, "--kubeconfig", kubeconfig(tmp_path, played), "-o", "json")

    return command


def test_the_workloads_of_a_cluster_are_replayed_on_its_own_queues(
    on_cluster: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.fromisoformat("2026-01-06T20:00:00Z").timestamp()
    monkeypatch.setattr("cli.replay.time", SimpleNamespace(time=lambda: now))
    status = {"type": "Admitted", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-05T12:00:01Z"}
    ended = {**status, "type": "Finished", "lastTransitionTime": "2026-01-05T15:00:01Z"}
    jobs = [workload(f"j{index}", 16) for index in range(3)]
    for each in jobs:
        each["status"]["conditions"] += [status, ended]
    found = on_cluster(cluster(*xpk(), node(), *jobs))
    answer = json.loads(found.stdout)
    (replayed,) = answer["replays"]
    assert (found.exit_code, _waits(answer), replayed["finished"]) == (0, [3.0], 3)
    assert replayed["chip_hours"]["useful"] == 3 * 3 * 16
    assert replayed["usd"] == pytest.approx(2.7 * 32 * 48)


def test_a_cluster_without_a_trace_or_rights_says_so(on_cluster: Callable[..., Result]) -> None:
    assert "at least one job" in on_cluster(cluster(*xpk())).stderr
    assert "expected a trace, or --kubeconfig" in _run("-s", "local").output

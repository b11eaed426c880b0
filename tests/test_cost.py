import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import __main__ as runner
from tests.__main__ import COMPLETE, QUICK, Lane, cost_report
from tests.cost import RECORD_VARIABLE, Record

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests import cost
from tests.cost import pytest_configure, pytest_fixture_setup, pytest_runtest_call, pytest_sessionfinish
cost.USUAL_CPU_SECONDS = 0.1
cost._slowness = lambda: 1.0
"""
TESTS = """
import subprocess, sys, time
import pytest

def burn(seconds=0.15):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

@pytest.fixture
def own():
    burn()

@pytest.fixture(scope="module")
def shared():
    burn()

def test_cheap(): pass
def test_dear(): burn()
def test_dear_child(): subprocess.run([sys.executable, "-c", "for _ in range(10**7): pass"])
def test_dear_fixture(own): pass
def test_shared_fixture(shared): pass
def test_sleep(): time.sleep(0.2)
def test_large_library():
    burn()
    sys.modules.update({f"large.part{number}": sys for number in range(100)})
@pytest.mark.costs(cpu_seconds=5)
def test_allowed(): burn()
@pytest.mark.complete
def test_complete(): burn()
"""


DEAR = {f"test_these.py::{name}" for name in ("test_dear", "test_dear_child", "test_dear_fixture")}


@pytest.fixture
def these(tmp_path: Path) -> Path:
    """A folder with tests of known costs."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_these.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  complete\n  costs(cpu_seconds)\n")
    return tmp_path


def _run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider"]
    known = {name: value for name, value in os.environ.items() if name != RECORD_VARIABLE}
    environment = known | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.costs(cpu_seconds=8)
def test_a_test_that_uses_more_than_its_limit_fails_by_name(these: Path) -> None:
    ended = _run(these)
    failed = {line.partition(" - ")[0] for line in ended.stdout.splitlines() if line.startswith("FAILED ")}
    assert failed == {f"FAILED {name}" for name in DEAR}, ended.stdout
    assert "test_these.py::test_dear used 0." in ended.stdout


@pytest.mark.costs(cpu_seconds=8)
def test_a_test_that_uses_more_than_its_limit_beside_others_is_recorded(these: Path) -> None:
    path = these / "costs.json"
    ended = _run(these, **{RECORD_VARIABLE: str(path)})
    assert ended.returncode == 0, ended.stdout
    record = Record(**json.loads(path.read_text()))
    assert set(record.over) == DEAR
    assert len(record.seconds) == 9
    assert record.seconds["test_these.py::test_complete"] > 0.1 > record.seconds["test_these.py::test_sleep"]


@pytest.mark.costs(cpu_seconds=8)
def test_the_run_fails_only_if_a_test_is_over_its_limit_alone_too(these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RECORD_VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(these)
    assert runner.judged_alone([]) == []
    assert runner.judged_alone(["test_these.py::test_cheap"]) == []
    assert runner.judged_alone(["test_these.py::test_cheap", "test_these.py::test_dear"]) == ["costs"]


def test_a_run_over_its_time_names_the_tests_that_grew_or_else_the_most_expensive_ones() -> None:
    before, now = {"old": 40.0, "grown": 1.0}, {"old": 40.5, "grown": 9.0, "new": 3.0}
    told = cost_report(QUICK, QUICK.minutes + 1, now, before)
    assert [line.split()[-1] for line in told[2:]] == ["grown", "new"]
    assert "+8.0" in told[2]
    told = cost_report(COMPLETE, COMPLETE.minutes + 1, {"small": 0.5, "large": 70.0, "middle": 7.0}, {})
    assert [line.split()[-1] for line in told[2:]] == ["large", "middle"]
    assert len(cost_report(QUICK, QUICK.minutes, {"large": 70.0}, {})) == 1


def test_without_the_programs_the_lanes_that_need_them_do_not_run(tmp_path: Path) -> None:
    lanes = [Lane("needs", "units", ("touch", f"{tmp_path}/ran")), Lane("no", "units", ("true",), needs_programs=False)]
    assert runner.run(lanes, replace(QUICK, programs=("false",)), tmp_path)[0] == ["programs"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("tier", [QUICK, COMPLETE], ids=lambda tier: tier.name)
def test_every_folder_of_tests_belongs_to_one_lane(tier: runner.Tier) -> None:
    lanes = [lane for lane in runner.LANES if lane.name not in tier.without and "pytest" in lane.command]
    rest = next(lane for lane in lanes if lane.name == "the rest")
    left_out = {word.removeprefix("--ignore=") for word in rest.command if word.startswith("--ignore=")}
    taken = {word for lane in lanes if lane is not rest for word in lane.command if word.startswith("tests/")}
    assert left_out - taken == ({"tests/sandboxes", "tests/faults/test_faults.py"} if tier is QUICK else set())

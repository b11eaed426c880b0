"""Each example on two slices, as the image carries it out, on CPU devices."""

import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from examples import rules
from examples.__main__ import NAMES
from tests.infra.recording import ROOT
from tests.workloads.call.running import SECONDS, TWO_SLICES, carried_out, submitted, without_proxy


def twice() -> dict[str, Any]:
    """As a call that is preempted after some steps and begins again."""
    from examples.rules import checkpoints

    checkpoints(steps=4)
    return checkpoints(steps=6)


CALLED: Mapping[str, Callable[[], Any]] = {"checkpoints": twice}
CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "same_order": lambda found: found == {"losses": [1.5, 0.75, 0.5], "devices": 4},
    "local_data": lambda found: found["sum"] == found["expected"] == 120,
    "last_batch": lambda found: math.isclose(found["mean"], found["expected"], rel_tol=1e-6) and found["counted"] == 21,
    "leader_result": lambda found: found == {"rows": [0, 0, 1, 1], "process": 0, "local": 2},
    "keras_data_parallel": lambda found: (
        found["losses"][-1] < found["losses"][0] / 2 and found["same_weights"] and found["processes"] == 2
    ),
    "one_process": lambda found: found == {"sum": 6, "devices": 4, "processes": 1},
    "checkpoints": lambda found: found == {"first_step": 4, "sum": 15},
}


def test_every_example_is_checked() -> None:
    functions = {name for name, _ in inspect.getmembers(rules, inspect.isfunction) if not name.startswith("_")}
    assert set(NAMES) == set(CHECKS) == functions


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "last_batch" else pytest.mark.complete) for name in NAMES]
)
@pytest.mark.costs(cpu_seconds=20)
def test_an_example_gives_what_it_promises(name: str, tmp_path: Path) -> None:
    run = CALLED.get(name) or getattr(rules, name)
    backend = "pathways" if name == "one_process" else "direct"
    spec = submitted(tmp_path / "call", run, slices=TWO_SLICES, ships=[ROOT / "examples"], backend=backend)
    called = carried_out(spec, tmp_path / "logs", without_proxy(tmp_path / "site") if backend == "pathways" else None)
    assert set(called.codes) == {0}
    assert called.outcome
    found = called.outcome.result()
    assert CHECKS[name](found), found

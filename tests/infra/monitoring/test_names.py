"""Every metric in an alert or a panel is exported by the trainer, or by Kueue and JobSet in the pinned versions."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from infra.monitoring import load_declared
from infra.stack.controllers import JOBSET, KUEUE
from multislice_run.live_metrics import FAMILIES
from sandbox.programs import TOOLS
from workloads.report.goodput import Cause
from workloads.spec import ExitCode

_OF_PROMETHEUS = {"up"}
_DECLARED = load_declared()
_ASKED = {
    **{f"alert {alert.name}": alert.expression for alert in _DECLARED.every_alert},
    **{f"panel {panel.title}": " ".join(query.expression for query in panel.queries) for panel in _DECLARED.panels},
}


def names(expression: str) -> set[str]:
    """The metrics in a query: words before a brace, a bracket or the end of what is aggregated, and no labels."""
    without_labels = re.sub(r"\{[^}]*\}", "{}", expression)
    without_labels = re.sub(r"\b(by|on|group_left|without)\s*\([^)]*\)", "", without_labels)
    return set(re.findall(r"\b(?:trainer|kueue|jobset)_[a-z_]+\b|\bup\b", without_labels))


@cache
def read_exported(controller: str, version: str) -> set[str]:
    """What the sources of that version register."""
    command = ["go", "mod", "download", "-json", f"sigs.k8s.io/{controller}@v{version}"]
    listed = subprocess.run(command, cwd=TOOLS / "kubernetes", capture_output=True, text=True, check=True)
    source = (Path(json.loads(listed.stdout)["Dir"]) / "pkg" / "metrics" / "metrics.go").read_text()
    registered = re.findall(
        r"prometheus\.(Counter|Gauge|Histogram)Opts\{\s*Subsystem:\s*constants\.(?:KueueName|JobSetSubsystemName),"
        r'\s*Name:\s*"([a-z_]+)"',
        source,
    )
    return {
        f"{controller}_{name}{suffix}"
        for kind, name in registered
        for suffix in (("_bucket", "_count", "_sum") if kind == "Histogram" else ("",))
    }


def read_all_exported() -> set[str]:
    trainer = {family.name for family in FAMILIES}
    return trainer | read_exported("kueue", KUEUE.version) | read_exported("jobset", JOBSET.version) | _OF_PROMETHEUS


@pytest.mark.parametrize("asked", _ASKED)
def test_every_queried_metric_is_exported(asked: str) -> None:
    found = names(_ASKED[asked])
    assert found
    assert found - read_all_exported() == set()


def test_causes_and_codes_that_are_asked_for_are_those_of_the_trainer() -> None:
    text = " ".join(_ASKED.values())
    assert set(re.findall(r'cause="([^"]+)"', text)) <= set(Cause)
    assert set(re.findall(r'code="([^"]+)"', text)) <= {code.name for code in ExitCode}

"""What a process loads of this repository, and how long that takes, by the module that it imports first."""

import json
import os
import subprocess
import sys

import pytest

_HEAVY = ("grpc", "jax", "kubernetes", "pulumi", "sandbox")
"""Packages that take long to import, or cannot be imported together: Google's clients, which read gs://, and Pulumi."""

_REPORT = """
import importlib, json, sys, time
importlib.import_module(sys.argv[1])
roots = ("cli", "infra", "multislice", "multislice_run", "policy", "sandbox", "workloads")
own = sum(name.partition(".")[0] in roots for name in sys.modules)
json.dump([own, time.process_time(), sorted(name for name in sys.argv[2:] if name in sys.modules)], sys.stdout)
"""


@pytest.mark.parametrize(
    ("entry", "most_modules", "most_cpu_seconds"),
    [
        ("infra.stack.jobset", 36, 0.5),
        ("infra.review.admission.rehearsal", 45, 0.5),
        ("infra.review.review", 50, 0.6),
        ("multislice", 76, 0.9),
        ("cli.main", 26, 0.5),
        ("cli.submit", 60, 0.7),
        ("cli.undeployed", 65, 0.7),
        ("cli.review", 61, 0.7),
        ("cli.status", 64, 0.7),
        ("cli.logs", 53, 0.7),
        ("cli.explain.explain", 68, 0.7),
        ("cli.rehearse.rehearse", 66, 0.7),
        ("cli.replay", 80, 0.8),
    ],
)
def test_an_entry_point_loads_no_more_than_it_needs(entry: str, most_modules: int, most_cpu_seconds: float) -> None:
    command = [sys.executable, "-c", _REPORT, entry, *_HEAVY]
    # The first process compiles what has changed.
    _, ended = (
        subprocess.run(
            command, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""}, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    )
    modules, cpu_seconds, heavy = json.loads(ended.stdout)
    assert (modules <= most_modules, cpu_seconds <= most_cpu_seconds, heavy) == (True, True, []), ended.stdout


def test_a_job_of_a_stack_file_is_rendered_without_heavy_packages() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "cli.main", "render", "-s", "local", "tiny"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert (loaded & {*_HEAVY}, "infra.stack.jobset" in loaded) == (set(), True)

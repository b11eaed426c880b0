"""Files of a run with anything in them: a history whose time and money add up, and a page."""

import json
import shutil
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import damaged, damaged_bytes
from tests.workloads.jobs import small_job
from tests.workloads.report.runs import crashed_and_resumed, event
from workloads.report.command import find_run
from workloads.report.goodput import goodput
from workloads.report.history import read_history
from workloads.report.mesh_text import PlacedArray, Placement, hosts_in_order
from workloads.report.page import page

LEDGER, STEPS, FAILURE = "runs/one/ledger/0-0.jsonl", "runs/one/steps/0-0.jsonl", "failures/job/host-1-0-2.json"
MANIFEST, PLACEMENT, CURRENT = "runs/one/manifest.json", "runs/one/placement/0.json", "current.json"


def _write(storage: Path) -> None:
    run = crashed_and_resumed(storage, 3600.0, 43.2)
    job = small_job(storage)
    (storage / MANIFEST).write_text(json.dumps({"spec": job.model_dump(), "versions": {"jax": "1"}, "image": None}))
    array = PlacedArray(name="w", shape=(8, 4), dtype="float32", element_bytes=4, split=(("fsdp",),))
    placed = Placement(mesh=job.mesh, slices=job.slices, hosts=hosts_in_order(job.slices), arrays=(array,))
    (run / "placement").mkdir()
    (storage / PLACEMENT).write_text(placed.model_dump_json())
    (storage / CURRENT).write_text('{"run": "one"}')
    pace = event(14, "pace", host="host-0", step=4, step_seconds=1.0, host_seconds=0.1)
    skipped = event(9, "checkpoint_skipped", step=2)
    with (storage / LEDGER).open("a") as ledger:
        ledger.write("".join(json.dumps(line) + "\n" for line in (skipped, pace)))


@cache
def contents() -> dict[str, str]:
    """Text of each file of the run as it should be."""
    with TemporaryDirectory() as name:
        _write(Path(name))
        return {
            path: (Path(name) / path).read_text() for path in (LEDGER, STEPS, FAILURE, MANIFEST, PLACEMENT, CURRENT)
        }


@pytest.fixture(scope="module")
def storage() -> Generator[Path]:
    with TemporaryDirectory() as name:
        _write(Path(name))
        yield Path(name)


def _told(storage: Path) -> None:
    history = read_history(epath.Path(storage) / "runs" / "one")
    spent = goodput(history.attempts)
    assert sum(part.seconds for part in spent.parts) == pytest.approx(spent.seconds)
    assert sum(start.seconds for start in spent.starts) == pytest.approx(spent.seconds)
    assert page(history).endswith("</html>\n")
    assert find_run(epath.Path(storage)).name == "one"


def _with(storage: Path, path: str, content: bytes) -> None:
    (storage / path).write_bytes(content)
    try:
        _told(storage)
    finally:
        (storage / path).write_text(contents()[path])


def _dumped(value: Any) -> bytes:
    return json.dumps(value, default=str, skipkeys=True).encode()


def _lines(path: str) -> st.SearchStrategy[bytes]:
    def valid() -> list[Any]:
        return [json.loads(line) for line in contents()[path].splitlines()]

    return damaged(valid).map(lambda lines: b"\n".join(map(_dumped, lines if isinstance(lines, list) else [lines])))


def _document(path: str) -> st.SearchStrategy[bytes]:
    return damaged(lambda: json.loads(contents()[path])).map(_dumped)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [(path, _lines) for path in (LEDGER, STEPS)]
    + [(path, _document) for path in (FAILURE, MANIFEST, PLACEMENT, CURRENT)],
)
def test_a_run_with_a_damaged_file_has_a_report(
    path: str, wrong: Callable[[str], st.SearchStrategy[bytes]], storage: Path
) -> None:
    @settings(deadline=None)
    @given(wrong(path) | damaged_bytes(contents()[path]))
    def has_a_report(content: bytes) -> None:
        _with(storage, path, content)

    has_a_report()


@settings(deadline=None)
@given(name=st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=20))
def test_a_run_with_files_of_other_names_has_a_report(name: str, storage: Path) -> None:
    if name in (".", ".."):
        return
    for folder in ("ledger", "steps", "placement"):
        for ending in ("", ".jsonl", ".json"):
            (storage / "runs" / "one" / folder / f"{name}{ending}").write_text(contents()[LEDGER])
    try:
        _told(storage)
    finally:
        shutil.rmtree(storage / "runs")
        shutil.rmtree(storage / "failures")
        _write(storage)

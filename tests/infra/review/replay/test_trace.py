"""Traces that are read, drawn, or refused with all their errors."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.review.replay.trace import MAX_BYTES, TraceError, places, read_csv
from infra.review.replay.workloads import read_workloads
from tests.infra.review.replay.fleets import drawn, fleet, job, stream, trace

_HEAD = "name,submitted,team,shape,slices,hours,priority,save_minutes"
_NAMES = f"{_HEAD},trace_hours".replace(",", ", ")


def _written(folder: Path, *rows: str, head: str = _HEAD) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([head, *rows]))
    return path


def _errors(folder: Path, *rows: str, head: str = _HEAD, days: float | None = None) -> list[tuple[int, str]]:
    with pytest.raises(TraceError) as raised:
        read_csv(_written(folder, *rows, head=head), days)
    return [(row, text.partition(":")[0]) for row, text in raised.value.errors]


def test_rows_become_jobs_in_the_order_of_their_submission(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        "late,2026-01-05T14:30:00Z,research,4x4,2,3.5,high,10",
        "early,2026-01-05T12:00:00+00:00,research,v6e-16,1,1,,",
    )
    found = read_csv(path, None)
    assert found.hours == 24
    early, late = found.jobs
    assert (early.name, early.submitted, early.priority, early.save_hours) == ("early", 0, 500, None)
    assert (late.row, late.submitted, late.hours, late.priority, late.save_hours) == (2, 2.5, 3.5, 1000, 10 / 60)


def test_a_job_at_the_end_of_a_day_is_followed_by_a_day(tmp_path: Path) -> None:
    assert read_csv(_written(tmp_path, "a,0,a,4x4,1,1,,", "b,48,a,4x4,1,1,,"), None).hours == 72
    assert read_csv(_written(tmp_path, "a,0,a,4x4,1,1,,", "b,47.9,a,4x4,1,1,,"), None).hours == 48


def test_every_error_of_a_trace_is_found_with_its_row(tmp_path: Path) -> None:
    rows = (
        "one,-1,a,4x4,1,2,normal,",
        "one,0,a,4x4,0,inf,urgent,0",
        ",yesterday,,,x,-3,low,1",
        "short,0,a",
        "fine,1,a,4x4,1,2,5,",
        "fine,2,a,4x4,1,90,,",
    )
    found = _errors(tmp_path, *rows)
    assert found == [
        (2, "submitted"),
        *((3, column) for column in ("hours", "priority", "save_minutes", "slices")),
        *((4, column) for column in ("hours", "name", "shape", "slices", "submitted", "team")),
        (5, "expected 8 values, got another number of them"),
        (7, "hours"),
        (7, "name"),
    ]


@pytest.mark.parametrize(
    ("head", "rows", "expected"),
    [
        ("name,team", (), [(1, f"expected the columns {_NAMES}, got none named submitted, shape, slices, hours")]),
        (f"{_HEAD},colour", ("a,0,a,4x4,1,1,,,red",), [(1, "colour")]),
        (f"{_HEAD},hours", ("a,0,a,4x4,1,1,,,2",), [(1, "hours")]),
        (f"{_HEAD},trace_hours", ("a,0,t,4x4,1,1,,,24", "b,0,t,4x4,1,1,,,48"), [(3, "trace_hours")]),
        (_HEAD, ("a,20260105,t,4x4,1,1,,",), [(2, "submitted")]),
        (_HEAD, (), [(1, "expected at least one job, got none")]),
        (_HEAD, ("a,0,t,4x4,1,1,,", "b,2026-01-01,t,4x4,1,1,,"), [(3, "submitted")]),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_refused(
    head: str, rows: tuple[str, ...], expected: list[tuple[int, str]], tmp_path: Path
) -> None:
    assert _errors(tmp_path, *rows, head=head) == expected


def test_a_file_that_is_too_large_or_no_text_is_refused_at_once(tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(TraceError, match="at most 64 MiB"):
        read_csv(large, None)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(TraceError, match="UTF-8"):
        read_csv(tmp_path / "bytes.csv", None)


def test_jobs_of_unknown_teams_and_shapes_are_refused_with_those_that_exist() -> None:
    jobs = job("a", row=3), job("b", team="nobody", row=4), job("c", shape="8x8", row=5)
    with pytest.raises(TraceError) as raised:
        places(trace(*jobs), fleet({"a": 32, "b": 0}))
    (row, team), (other, shape) = raised.value.errors
    assert (row, other) == (4, 5)
    assert "one of a, b" in team
    assert "4x4" in shape


def test_the_same_seed_draws_the_same_jobs_with_the_stated_distribution() -> None:
    often = stream("a", 100, hours={"median": 2, "p90": 8}, peak_share=0.75)
    first = drawn(often, days=20, seed=1)
    assert first == drawn(often, days=20, seed=1)
    assert first != drawn(often, days=20, seed=2)
    hours = sorted(each.hours for each in first.jobs)
    assert len(hours) == pytest.approx(2000, rel=0.1)
    assert (hours[len(hours) // 2], hours[len(hours) * 9 // 10]) == pytest.approx((2.0, 8.0), rel=0.2)
    assert sum(12 <= each.submitted % 24 < 18 for each in first.jobs) / len(hours) == pytest.approx(0.75, abs=0.05)


def test_drawn_jobs_end_with_the_trace_which_notes_how_many_are_shortened() -> None:
    found = drawn(stream("a", 20, hours={"median": 12, "p90": 40}), days=2)
    longest = [each.hours for each in found.jobs if each.hours == 48]
    assert max(each.hours for each in found.jobs) == 48
    assert 0 < len(longest) < len(found.jobs) / 4
    assert found.notes == (f"{len(longest)} jobs are shortened to the 48 hours of the trace",)


@pytest.mark.parametrize("hours", [{"median": 2, "p90": 1}, {"median": 12, "p90": 1e300}, {"median": 1e-300, "p90": 1}])
def test_hours_that_cannot_be_distributed_are_refused(hours: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        drawn(stream("a", 20, hours=hours), days=2)


def test_more_jobs_than_a_trace_may_have_are_not_drawn() -> None:
    with pytest.raises(TraceError, match="at most 200000 jobs"):
        drawn(stream("a", 1e9), days=2)


def _workload(name: str, created: str, chips: int = 4, count: int = 8, **status: Any) -> dict[str, Any]:
    selector = {"cloud.google.com/gke-tpu-topology": "4x4"}
    pod = {"nodeSelector": selector, "containers": [{"resources": {"limits": {"google.com/tpu": str(chips)}}}]}
    metadata = {"name": name, "namespace": "research", "uid": name, "creationTimestamp": f"2026-01-05T{created}:00Z"}
    spec = {"queueName": "q", "priority": 500, "podSets": [{"name": "s", "count": count, "template": {"spec": pod}}]}
    return {"kind": "Workload", "metadata": metadata, "spec": spec, "status": status}


def _condition(kind: str, at: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "x", "lastTransitionTime": f"2026-01-05T{at}:00Z"}


def test_workloads_of_a_cluster_become_jobs_of_the_hours_in_which_they_were_admitted() -> None:
    admission = {"clusterQueue": "team-a", "podSetAssignments": [{"name": "s", "flavors": {"google.com/tpu": "x"}}]}
    ended = [_condition("Admitted", "02:00"), _condition("Finished", "05:00")]
    labels = {"cloud.google.com/gke-tpu-topology": "4x4"}
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "x"}, "spec": {"nodeLabels": labels}}
    items: list[Any] = [
        flavor,
        _workload("done", "01:00", conditions=ended, admission=admission, accumulatedPastExecutionTimeSeconds=1800),
        _workload("runs", "02:00", conditions=[_condition("Admitted", "03:00")], admission=admission),
        _workload("evicted", "02:30", conditions=[_condition("Admitted", "04:00", "False")]),
        _workload("waits", "03:00"),
        _workload("without chips", "03:00", chips=0),
        *(
            {"kind": "Event", "reason": reason, "lastTimestamp": f"2026-01-05T{at}:00Z",
             "involvedObject": {"kind": "Workload", "uid": "evicted"}}
            for reason, at in (("Admitted", "03:00"), ("EvictedDueToPreempted", "04:00"))
        ),
    ]  # fmt: skip
    del items[1]["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"]
    found = read_workloads(items, "cluster", None, 0.5)
    hours = {each.name: (each.team, each.slices, each.submitted, each.hours) for each in found.jobs}
    assert hours == {
        "research/done": ("team-a", 2, 0, 3.5),
        "research/runs": ("team-a", 2, 1, 2),
        "research/evicted": ("research", 2, 1.5, 1),
        "research/waits": ("research", 2, 2, 1),
    }
    assert found.jobs[0].save_hours == 0.5
    assert [note.split()[:2] for note in found.notes] == [["1", "jobs"], ["left", "out"]]


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "ResourceFlavor", "spec": {}},
        {"kind": "ResourceFlavor", "metadata": {"name": "x"}, "spec": None},
        {"kind": "Event", "involvedObject": None, "reason": "Admitted"},
        {"kind": "Event", "involvedObject": {"kind": "Workload", "uid": "a"}, "reason": "x", "lastTimestamp": 5},
        _workload("b", "01:00", conditions=None),
        _workload("b", "01:00", conditions=["x"]),
        _workload("b", "01:00", conditions=[_condition("Admitted", "yesterday")]),
        _workload("b", "01:00") | {"status": None},
        _workload("b", "01:00") | {"metadata": {"name": "b", "namespace": "n", "uid": "b"}},
        _workload("b", "01:00", accumulatedPastExecutionTimeSeconds=[]),
    ],
)
def test_a_broken_object_of_a_cluster_is_refused_with_its_place(broken: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as raised:
        read_workloads([_workload("a", "01:00"), broken], "cluster", None, None)
    assert [row for row, _ in raised.value.errors] == [2]
    assert f"items.1 must be a whole {broken['kind']}" in str(raised.value)


def test_a_workload_runs_up_to_the_latest_time_of_the_list_or_the_time_at_which_it_was_read() -> None:
    event = {"kind": "Event", "involvedObject": {"uid": "x"}, "lastTimestamp": "2026-01-05T06:00:00Z"}
    runs = _workload("runs", "01:00", conditions=[_condition("Admitted", "02:00")])
    at = datetime(2026, 1, 5, 22, tzinfo=UTC).timestamp()
    for items, now, hours in (([runs, event], 0.0, 4), ([runs, _workload("new", "12:00")], 0.0, 10), ([runs], at, 20)):
        found = read_workloads(items, "cluster", None, None, now=now)
        assert found.jobs[0].hours == hours


def test_a_workload_of_more_than_a_year_ago_is_left_out() -> None:
    old = _workload("old", "01:00")
    old["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
    found = read_workloads([_workload("a", "01:00"), old], "cluster", None, None)
    assert ([each.name for each in found.jobs], found.hours) == (["research/a"], 24)
    assert any("366 days" in note for note in found.notes)

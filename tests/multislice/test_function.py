"""The decorator and the ways to call, with a cluster that carries out every call at once."""

import asyncio
import functools
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import multislice
from multislice import BucketFailed, Refused
from multislice.connection import StackConnection
from tests.multislice.known import NAMESPACE, Objects, carries_out, files


@pytest.fixture(autouse=True)
def carried_out(stack: StackConnection, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls of the test go to the stack, whose hosts are of this process and print nothing."""
    objects.on_create = carries_out(stack)
    monkeypatch.setattr("multislice.function.connect", lambda *_: stack)
    monkeypatch.setattr("multislice.function.follow", lambda *_: None)


on_slices: Any = multislice.run("local", "trillium")


def test_a_method_is_called_with_its_object(objects: Objects) -> None:
    class Model:
        def __init__(self, weight: int) -> None:
            self.weight = weight

        @on_slices
        def times(self, x: int) -> int:
            return self.weight * x

    # Taken beforehand: these hosts are of this process, and the class that comes to them by value is this one.
    one, many = Model(3).times, Model(2).times
    assert one(5) == 15
    assert [outcome.value for outcome in many.map([1, 2])] == [2, 4]
    assert all("times" in path for path in objects.found)


async def waits() -> None:
    await asyncio.sleep(0)


def counts() -> Generator[int]:
    yield 1


class Holder:
    @staticmethod
    def static() -> None: ...


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (waits, "waits is async; call it with asyncio.run"),
        (counts, r"counts yields; return list\(counts"),
        (functools.cache(len), r"got the cache of len; put @multislice.run\(...\) below it"),
        (vars(Holder)["static"], r"got the staticmethod static; put @multislice.run\(...\) below @staticmethod"),
        (3, r"expected a function below @multislice.run\(...\), got 3"),
    ],
)
def test_what_could_not_be_called_on_hosts_is_refused_where_it_is_decorated(function: Any, answer: str) -> None:
    with pytest.raises(Refused, match=answer):
        on_slices(function)


@pytest.mark.parametrize(("hours", "shown"), [(float("nan"), "nan"), (None, "None"), ("2", "'2'")])
def test_all_that_is_wrong_with_a_request_is_reported_at_once(hours: Any, shown: str) -> None:
    wrong: dict[str, Any] = {"count": 1.5, "priority": "urgent", "hosts": "none", "max_hours": hours, "backend": "gke"}
    with pytest.raises(Refused) as fault:
        multislice.run("local", "trillium", hang_minutes=0, **wrong)
    assert str(fault.value).splitlines() == [
        "count must be a number of slices of at least 1, got 1.5",
        f"max_hours must be a number above 0 and at most 8759, got {shown}",
        "hang_minutes must be a number above 0 or None, got 0",
        "priority must be one of low, normal, high, got 'urgent'",
        "hosts must be one of leader, all, got 'none'",
        "backend must be one of direct, pathways, auto, got 'gke'",
    ]


@pytest.mark.parametrize(("given", "got"), [({}, "neither"), ({"slices": "a", "accelerator": "b"}, "slices 'a' and")])
def test_slices_are_named_by_their_group_or_by_their_accelerator(given: dict[str, Any], got: str) -> None:
    with pytest.raises(Refused, match=f"either slices, the name of a slice group, or accelerator.*got {got}"):
        multislice.run("local", **given)


@pytest.mark.parametrize("given", [{}, {"stack": ""}, {"stack": len}])
def test_a_stack_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        multislice.run(slices="trillium", count=2, **given)


def test_an_accelerator_gets_one_slice_unless_more_are_asked_for(objects: Objects) -> None:
    given: list[dict[str, Any]] = [{}, {"count": 2}]
    calls = [multislice.run("local", accelerator="v6e-8", **more)(len).start("abc") for more in given]
    assert [call.spec.slices.count for call in calls] == [1, 2]


def test_auto_runs_one_process_on_each_host_as_kinetic_does(
    stack: StackConnection, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slice of several hosts, and of one."""
    one_host = {"topology": "2x2", "machine_type": "ct6e-standard-4t"}
    for shape in ({}, one_host):
        group = stack.settings.slices["trillium"].model_copy(update=shape)
        settings = stack.settings.model_copy(update={"slices": {"trillium": group}})
        monkeypatch.setattr(
            "multislice.function.connect", lambda *_, settings=settings: replace(stack, settings=settings)
        )
        multislice.run("local", "trillium", backend="auto")(len).start("abc")
    jobs = [replicated for jobset in objects.found.values() for replicated in jobset["spec"]["replicatedJobs"]]
    assert [(job["name"], job["template"]["spec"]["parallelism"]) for job in jobs] == [("slice", 2), ("slice", 1)]


def test_slices_cannot_be_checked_while_pathways_holds_their_chips() -> None:
    multislice.run("local", "trillium", backend="pathways", check_slices=False)
    multislice.run("local", "trillium", backend="pathways")
    with pytest.raises(Refused, match="check_slices must be left out with backend='pathways'"):
        multislice.run("local", "trillium", backend="pathways", check_slices=True)


def test_a_map_keeps_each_error_with_its_input(objects: Objects, tmp_path: Path) -> None:
    @on_slices
    def inverse(x: int) -> float:
        return 1 / x

    found = inverse.map([1, 0, 4])
    assert [(outcome.input, outcome.value) for outcome in found] == [(1, 1.0), (0, None), (4, 0.25)]
    assert isinstance(found[1].error, ZeroDivisionError)
    assert "input 0" in found[1].error.__notes__
    assert {path.parts[-2] for path in files(tmp_path) if path.name == "arguments.pkl"} == {
        path.rpartition("/")[2] for path, jobset in objects.found.items() if "Failed" in str(jobset["status"])
    }


def test_a_result_that_cannot_be_read_is_the_error_of_its_input_alone(
    stack: StackConnection, objects: Objects, tmp_path: Path
) -> None:
    carry_out = carries_out(stack)

    def spoil(jobset: Any) -> None:
        carry_out(jobset)
        if len(objects.found) == 1:
            path = stack.folder(NAMESPACE, jobset["metadata"]["name"]).path
            (tmp_path / path / "returned.pkl").unlink()
            (tmp_path / path / "returned.pkl").mkdir()

    objects.on_create = spoil
    first, second = on_slices(len).map(["a", "bb"])
    assert isinstance(first.error, BucketFailed)
    assert second.result() == 2
    assert len(objects.found) == 2


def test_an_interruption_after_the_last_result_loses_none(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("multislice.call.Call.take", interrupted)
    assert [outcome.value for outcome in on_slices(len).map(["a", "bb"])] == [1, 2]


def test_an_input_that_cannot_travel_is_refused_before_any_is_submitted(objects: Objects) -> None:
    @on_slices
    def shown(x: Any) -> str:
        return str(x)

    with pytest.raises(Refused, match="argument `x` is a generator"):
        shown.map([1, (x for x in "ab")])
    assert not objects.found


def test_a_map_that_is_stopped_keeps_what_has_ended_and_cancels_the_rest(
    objects: Objects, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out, made = objects.on_create, list[Any]()

    def first_alone(jobset: Any) -> None:
        made.append(jobset["metadata"]["name"])
        if len(made) == 1 and carry_out:
            carry_out(jobset)
        if len(made) == 3:
            raise KeyboardInterrupt

    objects.on_create = first_alone
    with pytest.raises(KeyboardInterrupt):
        on_slices(len).map(["a", "bb", "ccc"])
    first, second, _ = made
    assert [path.rpartition("/")[2] for path in objects.found] == [first]
    said = capsys.readouterr().err
    assert f"call {first} is for input 'a'" in said
    assert f"call {first} has ended (completed); multislice.attach({first!r}, stack='local').result()" in said
    assert f"call {second} is cancelled" in said

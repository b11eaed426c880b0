import importlib.util
import json
import os
import pickle
import sys
import traceback
from functools import partial
from typing import Any

import cloudpickle
import pytest

from workloads.call.folder import ARGUMENTS, FUNCTION, TEXT
from workloads.call.function import CALLER, OUTPUT_VARIABLE, Function, KerasOnAllHosts, pack_exception, presentable


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the function's surroundings after the test."""
    monkeypatch.setenv(OUTPUT_VARIABLE, "")
    monkeypatch.setitem(sys.modules, CALLER, None)


def unpacked(function: Any, *arguments: Any, text: dict[str, str] | None = None) -> Function:
    parts = {
        FUNCTION: cloudpickle.dumps(function),
        ARGUMENTS: pickle.dumps((arguments, {})),
        TEXT: json.dumps(text or {}).encode(),
    }
    return Function.unpack(parts, "gs://bucket/calls/one/output")


def test_a_function_knows_where_to_write() -> None:
    assert unpacked(os.getenv, "MULTISLICE_OUTPUT")() == "gs://bucket/calls/one/output"


def test_on_a_host_a_decorated_function_is_the_function_itself() -> None:
    def calls(x: int) -> Any:
        import multislice

        @multislice.run("dev", slices="any")
        def double(x: int) -> int:
            return 2 * x

        return double(x)

    assert unpacked(calls, 4)() == 8


def test_modules_that_were_sent_along_import_what_they_like_of_the_package_that_people_call_from() -> None:
    def names() -> Any:
        import multislice
        from multislice import CallError  # pyright: ignore[reportUnusedImport]

        try:
            multislice.attach("train-1", stack="dev")
        except RuntimeError as refusal:
            return multislice.CallError is CallError, CallError.__mro__[1] is Exception, str(refusal)

    same, error, refusal = unpacked(names)()
    assert (same, error) == (True, True)
    assert "make this call from the machine that you called from" in refusal


def test_keras_computes_with_jax_unless_something_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert unpacked(os.getenv, "KERAS_BACKEND")() == "jax"
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    assert unpacked(os.getenv, "KERAS_BACKEND")() == "numpy"


def test_keras_is_prepared_though_somebody_looked_for_it_before_it_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setattr(sys, "meta_path", [KerasOnAllHosts("call"), *sys.meta_path])
    for _ in range(2):
        found = importlib.util.find_spec("keras")
        assert found
        assert found.loader
        assert isinstance(found.loader.exec_module, partial)


def test_a_function_may_end_by_leaving_the_program() -> None:
    assert unpacked(sys.exit)() is None
    assert unpacked(sys.exit, 0)() is None
    with pytest.raises(SystemExit) as end:
        unpacked(sys.exit, 3)()
    assert pack_exception(end.value) is None


def test_an_exception_without_a_text_is_replaced() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("text")

    assert str(presentable(Mute())) == "Mute, whose text is not available (KeyError)"
    error = ValueError("x")
    assert presentable(error) is error


@pytest.mark.costs(cpu_seconds=15)
def test_a_traceback_shows_lines_of_a_file_that_the_host_does_not_have() -> None:
    text = "def fails():\n    raise ValueError('here')  # of the desk\n"
    around: dict[str, Any] = {"__name__": "train"}
    exec(compile(text, "/desk/project/train.py", "exec"), around)
    with pytest.raises(ValueError, match="here") as found:
        unpacked(around["fails"], text={"/desk/project/train.py": text})()
    assert "raise ValueError('here')  # of the desk" in "".join(traceback.format_exception(found.value))

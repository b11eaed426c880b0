import json
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from workloads.call.folder import ARGUMENTS, FUNCTION, TEXT
from workloads.call.function import CALLER, OUTPUT_VARIABLE, Function


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What a function finds around it is gone after the test."""
    monkeypatch.setenv(OUTPUT_VARIABLE, "")
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, CALLER, None)
        yield


def unpacked(function: Any, *arguments: Any, text: dict[str, str] | None = None) -> Function:
    parts = {
        FUNCTION: cloudpickle.dumps(function),
        ARGUMENTS: pickle.dumps((arguments, {})),
        TEXT: json.dumps(text or {}).encode(),
    }
    return Function.unpacked(parts, "gs://bucket/calls/one/output")


def test_a_function_is_told_where_to_write() -> None:
    def where() -> str:
        import os

        return os.environ["MULTISLICE_OUTPUT"]

    assert unpacked(where)() == "gs://bucket/calls/one/output"


def test_on_a_host_a_decorated_function_is_the_function_itself() -> None:
    def calls(x: int) -> Any:
        import multislice

        @multislice.run("dev", slices="any")
        def double(x: int) -> int:
            return 2 * x

        return double(x)

    assert unpacked(calls, 4)() == 8


def test_a_traceback_shows_lines_of_a_file_that_the_host_does_not_have() -> None:
    text = "def fails():\n    raise ValueError('here')  # of the desk\n"
    around: dict[str, Any] = {}
    exec(compile(text, "/desk/project/train.py", "exec"), around)
    with pytest.raises(ValueError, match="here") as found:
        unpacked(around["fails"], text={"/desk/project/train.py": text})()
    assert "raise ValueError('here')  # of the desk" in "".join(traceback.format_exception(found.value))

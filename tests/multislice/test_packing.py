"""What travels with a function, and what is refused before anything is submitted."""

import functools
import io
import pickle
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

import multislice
from multislice import checkpoint_folder
from multislice.errors import Refused
from multislice.packing import Packed, Project, pack, source_lines
from tests.checkout import ROOT
from tests.infra.recording import values_of
from tests.workloads.call.running import PUBLIC_KEY
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT


def packed(function: Any, *arguments: Any, **named: Any) -> Packed:
    return pack(function, [(arguments, named)], Project([]))[0]


def test_code_and_arguments_arrive_without_the_module_that_they_were_written_in() -> None:
    bias = 3

    def scaled(x: int, *, by: int) -> int:
        return x * by + bias

    parts = packed(scaled, 2, by=5).parts
    arguments, named = pickle.loads(parts[ARGUMENTS])
    assert pickle.loads(parts[FUNCTION])(*arguments, **named) == 13


def test_arguments_that_do_not_fit_are_reported_before_anything_is_submitted() -> None:
    def scaled(x: int) -> int:
        return x

    with pytest.raises(Refused, match="do not fit scaled: missing a required argument: 'x'"):
        packed(scaled)


def test_an_array_of_jax_is_refused_by_the_name_of_its_argument() -> None:
    import jax.numpy as jnp

    def trained(weights: Any, other: Any = None) -> Any:
        return weights, other

    with pytest.raises(Refused, match=r"argument `weights`\['w'\] is a JAX array, .* pass numpy\.asarray\(x\)"):
        packed(trained, {"w": jnp.ones(2)})


def test_a_closure_variable_is_refused_by_its_name(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:

        def writes() -> None:
            log.write("x")

        with pytest.raises(Refused, match="writes cannot be called on slices:\nclosure variable `log` is an open file"):
            packed(writes)


def test_a_module_of_the_project_is_refused_with_the_folder_to_ship() -> None:
    def uses() -> str:
        return PUBLIC_KEY + str(pack)

    with pytest.raises(Refused, match=r"global `pack` is part of the package that submits calls") as fault:
        packed(uses)
    assert "PUBLIC_KEY" not in str(fault.value)

    def uses_a_test() -> Any:
        return values_of(Path("x"))

    with pytest.raises(
        Refused, match=rf"`values_of` is of module tests\.infra\.recording \(.*\), .* pass ships=\['{ROOT}'\]"
    ):
        packed(uses_a_test)
    # In this folder it is not found by the name of its module.
    with pytest.raises(Refused, match="values_of"):
        pack(uses_a_test, [((), {})], Project([ROOT / "tests" / "infra"]))


def test_what_the_package_has_for_hosts_is_sent_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def where() -> tuple[str, str]:
        return multislice.checkpoint_folder(), checkpoint_folder()

    monkeypatch.setenv("MULTISLICE_OUTPUT", "gs://bucket/output")
    folder = "gs://bucket/output/checkpoints"
    assert pickle.loads(packed(where).parts[FUNCTION])() == (folder, folder)


def test_what_is_in_the_image_needs_no_shipping() -> None:
    import numpy as np

    from workloads.spec import load_preset

    def uses() -> Any:
        return np.ones(2), load_preset("tiny")

    assert packed(uses).parts.keys() == {FUNCTION, ARGUMENTS, TEXT}


def test_too_much_is_refused_with_the_largest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.call.parcel.MAX_BYTES", 1 << 20)

    def counted(labels: list[int], images: bytes) -> int:
        return len(images) + len(labels)

    text = r"at most 1\.0 MiB of code and arguments, got 2\.0 MiB; the largest is argument `images` with 2\.0 MiB\. Put"
    with pytest.raises(Refused, match=text):
        packed(counted, [1], b"x" * (2 << 20))


def test_arguments_that_were_given_beforehand_travel_too(tmp_path: Path) -> None:
    def scaled(x: Any, by: int) -> Any:
        return x * by

    found = packed(functools.partial(scaled, 3), by=2)
    arguments, named = pickle.loads(found.parts[ARGUMENTS])
    assert pickle.loads(found.parts[FUNCTION])(*arguments, **named) == 6
    assert found.function == "scaled"
    with pytest.raises(Refused, match="argument `x` is a generator"):
        packed(functools.partial(scaled, (n for n in "ab")), by=2)


def test_what_an_object_or_a_wrapper_holds_is_named() -> None:
    class Log:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def write(self) -> None: ...

    with pytest.raises(Refused, match=r"\nits object `self`\.lock is a lock"):
        packed(Log().write)

    lock = threading.Lock()

    @functools.wraps(len)
    def held(text: str) -> int:
        with lock:
            return len(text)

    with pytest.raises(Refused, match="\nclosure variable `lock` is a lock"):
        packed(held, "x")


SHIPPED = ("recipes/__init__.py", "recipes/words.txt")
LEFT_HERE = (".git/config", "__pycache__/x.pyc", ".env", "venv/pyvenv.cfg", "venv/lib.py")


def folder(path: Path) -> Path:
    for name in (*SHIPPED, *(f"recipes/{name}" for name in LEFT_HERE)):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    (path / "recipes" / "secret").symlink_to("/etc/hostname")
    return path


def names(sources: bytes | None) -> set[str]:
    assert sources
    return set(zipfile.ZipFile(io.BytesIO(sources)).namelist())


def test_a_package_is_shipped_under_its_name_and_a_folder_as_its_content_without_hidden_files_and_environments(
    tmp_path: Path,
) -> None:
    assert names(Project([folder(tmp_path) / "recipes"]).sources()) == set(SHIPPED)
    assert names(Project([tmp_path]).sources()) == set(SHIPPED)


def test_two_files_of_one_name_are_refused_and_a_folder_named_twice_is_not(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.py").touch()
    with pytest.raises(Refused, match=r"have a file words\.py: .*one/words\.py and .*two/words\.py; pass one of them"):
        Project([tmp_path / "one", tmp_path / "two"]).sources()
    assert names(Project([tmp_path / "one", tmp_path / "one"]).sources()) == {"words.py"}


def test_folders_that_are_too_large_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.py").write_text("x")
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(1 << 40)  # more than could be read
    answer = r"got 1048576\.0 MiB; the largest is .*/weights with 1048576\.0 MiB\. Pass only folders with modules"
    with pytest.raises(Refused, match=answer):
        Project([tmp_path]).sources()


def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words.py").touch()

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(Refused, match=r"cannot read the folders of ships=: .*Permission denied: '.*words\.py'"):
        Project([tmp_path]).sources()


def test_equal_folders_are_equal_parts(tmp_path: Path) -> None:
    first = Project([folder(tmp_path)]).sources()
    (tmp_path / "recipes" / "words.txt").touch()
    assert Project([tmp_path]).sources() == first
    assert SOURCES not in packed(len, "x").parts


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected ships to be folders, got .*nowhere"):
        Project([tmp_path / "nowhere"])


SOURCE = """\
TOKEN = "of nobody's business"

def helper(x):
    return (
        x + 1
    )

def elsewhere():
    return TOKEN

def train(x):
    def inner(y):
        return helper(y)
    return [inner(n) for n in x]
"""
HIDDEN = ('TOKEN = "of nobody\'s business"\n', "def elsewhere():\n    return TOKEN\n")


def test_of_a_script_the_lines_of_functions_that_travel_are_kept_where_they_were(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SOURCE)
    around: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, str(tmp_path / "script.py"), "exec"), around)
    (shown,) = source_lines(around["train"]).values()
    expected = SOURCE
    for text in HIDDEN:
        expected = expected.replace(text, "\n" * text.count("\n"))
    assert shown == expected
    assert source_lines(len) == {}

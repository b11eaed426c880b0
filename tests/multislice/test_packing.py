"""What travels with a function, and what is refused before anything is submitted."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from multislice.errors import Refused
from multislice.packing import Packed, pack
from multislice.project import Project
from tests.infra.recording import ROOT, values_of
from tests.workloads.call.running import KEY
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT


def packed(function: Any, *arguments: Any, **named: Any) -> Packed:
    return pack(function, arguments, named, Project([]))


def test_code_and_arguments_arrive_without_the_module_that_they_were_written_in() -> None:
    bias = 3

    def scaled(x: int, *, by: int) -> int:
        return x * by + bias

    parts = packed(scaled, 2, by=5).parts
    arguments, named = pickle.loads(parts[ARGUMENTS])
    assert pickle.loads(parts[FUNCTION])(*arguments, **named) == 13


def test_arguments_that_do_not_fit_are_told_before_anything_is_submitted() -> None:
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
        return KEY + str(pack)

    with pytest.raises(Refused, match=r"global `pack` is part of the package that calls") as fault:
        packed(uses)
    assert "KEY" not in str(fault.value)

    def uses_a_test() -> Any:
        return values_of(Path("x"))

    with pytest.raises(
        Refused, match=rf"`values_of` is of module tests\.infra\.recording \(.*\), .* say ships=\['{ROOT}'\]"
    ):
        packed(uses_a_test)


def test_a_module_that_is_shipped_must_be_found_there_by_its_name() -> None:
    def uses_a_test() -> Any:
        return values_of(Path("x"))

    with pytest.raises(Refused, match="values_of"):
        pack(uses_a_test, (), {}, Project([ROOT / "tests" / "infra"]))


def test_what_is_in_the_image_needs_no_shipping() -> None:
    import numpy as np

    from workloads.spec import load_preset

    def uses() -> Any:
        return np.ones(2), load_preset("tiny")

    assert packed(uses).parts.keys() == {FUNCTION, ARGUMENTS, TEXT}


def test_too_much_is_refused_with_the_largest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multislice.packing.MOST_BYTES", 1 << 20)

    def counted(labels: list[int], images: bytes) -> int:
        return len(images) + len(labels)

    told = r"at most 1\.0 MiB of code and arguments, got 2\.0 MiB; the largest is argument `images` with 2\.0 MiB\. Put"
    with pytest.raises(Refused, match=told):
        packed(counted, [1], b"x" * (2 << 20))


def folder(path: Path) -> Path:
    for name in ("recipes/__init__.py", "recipes/words.txt", "recipes/.git/config", "recipes/__pycache__/x.pyc"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    (path / "recipes" / "secret").symlink_to("/etc/hostname")
    return path


def names(sources: bytes | None) -> set[str]:
    assert sources
    return set(zipfile.ZipFile(io.BytesIO(sources)).namelist())


def test_a_package_is_shipped_under_its_name_and_a_folder_as_what_lies_in_it(tmp_path: Path) -> None:
    shipped = {"recipes/__init__.py", "recipes/words.txt"}
    assert names(Project([folder(tmp_path) / "recipes"]).sources()) == shipped
    assert names(Project([tmp_path]).sources()) == shipped


def test_equal_folders_are_equal_parts(tmp_path: Path) -> None:
    first = Project([folder(tmp_path)]).sources()
    (tmp_path / "recipes" / "words.txt").touch()
    assert Project([tmp_path]).sources() == first
    assert SOURCES not in packed(len, "x").parts


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected ships to name folders, got .*nowhere"):
        Project([tmp_path / "nowhere"])

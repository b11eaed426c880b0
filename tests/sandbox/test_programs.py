import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox import builds, programs
from sandbox.builds import API_DOCUMENTS, BuildProgress
from sandbox.programs import (
    OPERATORS,
    PREVIOUS,
    PROGRAMS,
    Program,
    ProgramsError,
    version_of,
)
from tests.sandbox.node_agent.pods import runs


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    # Where the fake Go puts what it downloads.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "path").mkdir()
    return tmp_path


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def with_fake_go(folder: Path, script: str) -> None:
    executable(
        folder / "path" / "go", f'PATH=/usr/bin:/bin\ncase "$1 $2" in\n"mod download") {DOWNLOAD} ;;\nesac\n{script}'
    )


DOWNLOAD = (
    "d=$(mktemp -d); mkdir -p $d/charts/jobset $d/charts/kueue $d/charts/operator/crds $d/config/crd;"
    " mkdir -p $d/storage/v1; echo {} > $d/storage/v1/storage-api.json;"
    """ printf '{"Dir": "%s"}' $d; exit 0"""
)
BUILD = 'while [ "$1" != "-o" ]; do shift; done; echo program > "$2"'


def ignore(_: BuildProgress) -> None:
    pass


def test_the_previous_operators_are_one_minor_behind():
    def minors(where: tuple[Program, ...]) -> dict[str, list[int]]:
        found = [program for program in where if program.name in OPERATORS]
        return {program.name: [int(part) for part in version_of(program).split(".")[:2]] for program in found}

    assert minors(PREVIOUS) == {name: [major, minor - 1] for name, (major, minor) in minors(PROGRAMS).items()}


def test_the_previous_operators_are_built_only_when_asked_for(empty_cache: Path):
    with_fake_go(empty_cache, BUILD)
    (before,) = [version_of(program) for program in PREVIOUS if program.name == "kueue"]
    built = builds.prepare(ignore)
    with pytest.raises(ProgramsError, match=f"kueue {before} is not built yet"):
        built.operator("kueue", before)
    builds.prepare_previous(ignore)
    assert built.operator("kueue", before).path != built.operator("kueue", None).path


def test_without_go_and_programs_the_error_names_go_and_what_is_missing(empty_cache: Path):
    with pytest.raises(ProgramsError, match=r"kube-apiserver.*needs Go 1\.26.*make train"):
        builds.prepare(ignore)


def test_found_never_builds(empty_cache: Path):
    with pytest.raises(ProgramsError, match="not built yet: pulumi.*charts/kueue.*make programs"):
        programs.found()


def test_a_build_reports_each_program_in_turn_and_the_next_call_builds_nothing(empty_cache: Path):
    with_fake_go(empty_cache, BUILD)
    lines: list[BuildProgress] = []
    built = builds.prepare(lines.append)
    assert [line.name for line in lines if line.state == "built"] == [program.name for program in PROGRAMS]
    assert {line.total for line in lines} == {len(PROGRAMS)}
    assert built.path("etcd").is_relative_to(empty_cache / "cache")
    lines.clear()
    builds.prepare(lines.append)
    assert lines == []


def test_a_failed_build_keeps_finished_programs_and_shows_the_compilers_output(empty_cache: Path):
    with_fake_go(
        empty_cache, f'case "$*" in *kube-scheduler*) echo "no space left on device" >&2; exit 1;; esac\n{BUILD}'
    )
    with pytest.raises(
        ProgramsError, match=r"kube-scheduler .*exit code 1:\n  no space left on device\nrun the command"
    ):
        builds.prepare(ignore)
    with_fake_go(empty_cache, BUILD)
    lines: list[BuildProgress] = []
    builds.prepare(lines.append)
    assert lines[0].name == "kube-scheduler"


def test_a_program_on_path_is_taken_only_in_the_right_version(empty_cache: Path):
    version = programs.versions()["kubectl"]
    kubectl = next(program for program in PROGRAMS if program.name == "kubectl")
    executable(empty_cache / "path" / "kubectl", f"/bin/echo Client Version: v{version}0")
    assert programs.existing(kubectl) is None
    executable(empty_cache / "path" / "kubectl", f"/bin/echo Client Version: v{version}")
    assert programs.existing(kubectl) == empty_cache / "path" / "kubectl"
    (empty_cache / "path" / "kubectl").write_text("no program")
    assert programs.existing(kubectl) is None


def test_a_right_program_is_found_behind_a_wrong_one_and_in_pulumis_folder(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    pulumi = next(program for program in PROGRAMS if program.name == "pulumi")
    ours, other = empty_cache / "home" / ".pulumi" / "bin", empty_cache / "other" / "bin"
    for folder, version in ((other, "0.1.0"), (ours, version_of(pulumi))):
        folder.mkdir(parents=True)
        executable(folder / "pulumi", f"/bin/echo v{version}")
    monkeypatch.setenv("HOME", str(empty_cache / "home"))
    monkeypatch.setenv("PATH", f"{empty_cache / 'path'}:{other}")
    assert programs.existing(pulumi) == ours / "pulumi"
    with_fake_go(empty_cache, BUILD)
    lines: list[BuildProgress] = []
    assert builds.prepare(lines.append).path("pulumi") == ours / "pulumi"
    assert "pulumi" not in {line.name for line in lines}


def test_a_plan_needs_only_the_programs_that_are_built_first(empty_cache: Path):
    with_fake_go(empty_cache, BUILD)
    stopped_after = len(programs.ENGINE)

    def stop(line: BuildProgress) -> None:
        if line.index > stopped_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        builds.prepare(stop)
    engine = programs.found(programs.ENGINE)
    assert engine.path("pulumi").is_file()
    assert engine.operator("kueue", None).chart.is_dir()
    with pytest.raises(ProgramsError, match="not built yet: kubectl; build them with `make programs`"):
        engine.path("kubectl")


def test_a_stopped_build_ends_its_compiler(empty_cache: Path):
    with_fake_go(empty_cache, f"echo $$ > {empty_cache}/pid; exec sleep 60")

    def stop(_: BuildProgress) -> None:
        if (empty_cache / "pid").exists() and (empty_cache / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        builds.prepare(stop)
    assert not runs(int((empty_cache / "pid").read_text()))


def test_one_program_is_built_once_and_the_expected_time_is_that_of_the_others(empty_cache: Path):
    everything = builds.expected_seconds(builds.missing())
    with_fake_go(empty_cache, BUILD)
    lines: list[BuildProgress] = []
    assert builds.prepare_one(PROGRAMS[0], lines.append) == builds.prepare_one(PROGRAMS[0], lines.append)
    assert [line.name for line in lines if line.state == "built"] == [PROGRAMS[0].name]
    assert 0 < builds.expected_seconds(builds.missing()) < everything
    builds.prepare(ignore)
    assert builds.expected_seconds(builds.missing()) == 0


def test_the_cache_is_keyed_by_the_lock(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    with_fake_go(empty_cache, BUILD)
    first = builds.prepare(ignore).path("etcd")
    copied = empty_cache / "tools"
    for folder in (lock.parent for lock in programs.TOOLS.glob("*/go.mod")):
        (copied / folder.name).mkdir(parents=True)
        for name in ("go.mod", "go.sum"):
            (copied / folder.name / name).write_text((folder / name).read_text())
    (copied / "kubernetes" / "go.sum").write_text("changed")
    monkeypatch.setattr(programs, "TOOLS", copied)
    monkeypatch.setattr(builds, "TOOLS", copied)
    assert builds.prepare(ignore).path("etcd") != first
    assert os.path.exists(first)


def test_two_builds_at_once_build_every_program_once(empty_cache: Path):
    slow = 'case "$*" in *etcd*) sleep 0.6;; esac'
    with_fake_go(empty_cache, f"echo built >> {empty_cache}/builds\n{slow}\n{BUILD}")
    lines: list[BuildProgress] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(builds.prepare, lines.append), pool.submit(builds.prepare, lines.append)
        assert first.result() == second.result()
    assert (empty_cache / "builds").read_text().count("built") == len(PROGRAMS)
    assert "waiting for another build" in {line.state for line in lines}


def test_a_document_of_a_module_is_copied_once_and_needs_no_program(empty_cache: Path):
    with_fake_go(empty_cache, "exit 1")
    document = builds.prepare_copy(API_DOCUMENTS["storage"], ignore)
    assert document.read_text() == "{}\n"
    (empty_cache / "path" / "go").unlink()
    assert builds.prepare_copy(API_DOCUMENTS["storage"], ignore) == document

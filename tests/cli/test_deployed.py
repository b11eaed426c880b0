import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.deployed import Deployed, JobPlace, deployed
from cli.halt import Halt
from infra.kubernetes import ApiServer
from sandbox.access import administrator
from sandbox.site import Site

ONE, TWO = JobPlace("one", "research", "research"), JobPlace("two", "product", "product")


def stack(*jobs: JobPlace) -> Deployed:
    return Deployed("dev", {}, administrator(Site(Path("nowhere"), 64)), "gs://bucket", jobs)


def pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch, *, prints: str, status: int = 0) -> None:
    """A Pulumi that answers `stack output` so."""
    program, answer = folder / "pulumi", folder / "answer"
    answer.write_text(prints)
    program.write_text(f"#!/bin/sh\ncat {answer}\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_only_job_needs_no_name():
    assert stack(ONE).job(None) == ONE


def test_one_of_several_is_found_by_its_name():
    assert stack(ONE, TWO).job("two") == TWO
    assert stack(ONE, TWO).job_folder(TWO) == "gs://bucket/two"


@pytest.mark.parametrize(
    ("jobs", "name", "got"),
    [((ONE, TWO), None, "(one, two), got no name"), ((ONE,), "x", "(one), got 'x'"), ((), None, "(none), got no name")],
)
def test_a_job_that_cannot_be_meant_is_told_with_those_there_are(
    jobs: tuple[JobPlace, ...], name: str | None, got: str
):
    with pytest.raises(Halt) as halted:
        stack(*jobs).job(name)
    assert got in str(halted.value)


def test_what_a_stack_tells_is_where_its_jobs_and_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = {"name": "one", "namespace": "research", "queue": "research", "kind": "training"}
    outputs = {"endpoint": "gke.example", "cluster": "dev", "jobs": [place], "checkpoint_bucket": "gs://bucket"}
    pulumi(tmp_path, monkeypatch, prints=json.dumps(outputs))
    api = administrator(Site(Path("nowhere"), 64))
    asked: list[str] = []
    monkeypatch.setattr(ApiServer, "at", lambda endpoint: asked.append(endpoint) or api)
    found = deployed("dev", None)
    assert (found.jobs, found.storage, found.api, asked) == ((ONE,), "gs://bucket", api, ["gke.example"])


def test_a_stack_that_pulumi_does_not_know_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pulumi(tmp_path, monkeypatch, prints="error: no stack named 'dev' found", status=255)
    with pytest.raises(Halt, match="no stack named 'dev' found\nBring it up") as halted:
        deployed("dev", None)
    # Callers of the library have no command line.
    assert "--engine" not in str(halted.value)
    assert halted.value.options == ", or look elsewhere: --engine sandbox"


@pytest.mark.parametrize("prints", ["No version is set\n{}", "", "[]", "[1]", '"up"'])
def test_what_is_no_answer_of_pulumi_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str):
    pulumi(tmp_path, monkeypatch, prints=prints)
    with pytest.raises(Halt, match="expected (JSON from `pulumi stack output`|stack 'dev' to be up)"):
        deployed("dev", None)


def test_a_pulumi_that_cannot_be_run_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pulumi(tmp_path, monkeypatch, prints="{}")
    (tmp_path / "pulumi").write_text("no program")
    with pytest.raises(Halt, match="expected the program pulumi on the PATH, got"):
        deployed("dev", None)


def test_a_stack_that_was_never_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pulumi(tmp_path, monkeypatch, prints='{"bill": {}}')
    with pytest.raises(Halt, match="got one without a cluster; run `pulumi up --stack dev`"):
        deployed("dev", None)


@pytest.mark.parametrize("jobs", [[{"name": "one"}], ["one"]])
def test_a_stack_of_another_version_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[object]):
    pulumi(tmp_path, monkeypatch, prints=json.dumps({"endpoint": "gke.example", "cluster": "dev", "jobs": jobs}))
    with pytest.raises(Halt, match="what this version reads, got no .*: run `pulumi up --stack dev`"):
        deployed("dev", None)


@pytest.mark.parametrize(
    ("sandbox", "options"),
    [
        (None, "-s dev"),
        (Path(".sandbox"), "-s dev --engine sandbox"),
        (Path("/a b"), "-s dev --engine sandbox --sandbox '/a b'"),
    ],
)
def test_a_command_line_names_the_stack_where_it_stands(sandbox: Path | None, options: str):
    assert replace(stack(), sandbox=sandbox).options == options


def test_missing_credentials_are_told_with_the_command_that_gives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outputs = {"endpoint": "gke.example", "cluster": "dev", "jobs": [], "checkpoint_bucket": "gs://bucket"}
    pulumi(tmp_path, monkeypatch, prints=json.dumps(outputs))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Halt, match="gcloud components install gke-gcloud-auth-plugin"):
        deployed("dev", None)

import json
from collections.abc import Generator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from cli.answer import Halt
from cli.deployed import (
    Deployed,
    JobRef,
    Kubectl,
    choose_job,
    deployed,
    deployed_by_kubeconfig,
    observed_by_kubeconfig,
    published_for,
)
from cli.explain.finding import submit_again
from cli.observed.cluster import read_cluster
from cli.observed.observe import folder_of
from cli.observed.snapshot import JobStatus
from infra.cluster.kubernetes import ApiServer
from infra.cluster.stacks import StacksError
from infra.stack.names import PUBLISHED, PUBLISHED_KEY
from infra.stack.published import Published
from infra.stack.settings.read import parse
from sandbox.site import Site, administrator
from tests.cli import api_objects, standing
from tests.cli.api_objects import JOBSETS
from tests.cli.api_server import Played, client, playing
from tests.cli.rehearse.clusters import kubeconfig
from tests.cli.standing import running
from tests.infra.recording import stack_values

ONE, TWO = JobRef("one", "research", "research"), JobRef("two", "product", "product")


def stack(*jobs: JobRef) -> Deployed:
    return Deployed("dev", {}, administrator(Site(Path("nowhere"), 64)), "gs://bucket", jobs)


def pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch, *, prints: str, status: int = 0) -> None:
    """A Pulumi that answers `stack output` so."""
    program, answer = folder / "pulumi", folder / "answer"
    answer.write_text(prints)
    program.write_text(f"#!/bin/sh\ncat {answer}\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_only_job_needs_no_name_and_one_of_several_does():
    assert stack(ONE).job(None) == ONE
    assert stack(ONE, TWO).job("two") == TWO
    assert stack(ONE, TWO).job_folder(TWO) == "gs://bucket/two"


@pytest.mark.parametrize(
    ("jobs", "name", "got"),
    [((ONE, TWO), None, "(one, two), got no name"), ((ONE,), "x", "(one), got 'x'"), ((), None, "(none), got no name")],
)
def test_a_job_that_cannot_be_meant_is_reported_with_the_existing_ones(
    jobs: tuple[JobRef, ...], name: str | None, got: str
):
    with pytest.raises(Halt) as halted:
        stack(*jobs).job(name)
    assert got in str(halted.value)


def test_what_a_stack_says_is_where_its_jobs_and_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = {"name": "one", "namespace": "research", "queue": "research", "kind": "training"}
    outputs = {"endpoint": "gke.example", "cluster": "dev", "jobs": [place], "checkpoint_bucket": "gs://bucket"}
    pulumi(tmp_path, monkeypatch, prints=json.dumps(outputs))
    api = administrator(Site(Path("nowhere"), 64))
    asked: list[str] = []
    monkeypatch.setattr(ApiServer, "at", lambda endpoint: asked.append(endpoint) or api)
    found = deployed("dev", None)
    assert (found.jobs, found.storage, found.api, asked) == ((ONE,), "gs://bucket", api, ["gke.example"])


WRONG_JSON = "expected (JSON from `pulumi stack output`|stack 'dev' to be up)"
OTHER_VERSION = "to have the outputs of this version, got no .*; run `multislice up -s dev`"


@pytest.mark.parametrize(
    ("prints", "status", "message"),
    [
        (
            "error: no stack named 'dev' found",
            255,
            "no stack named 'dev' found\nBring it up with `multislice up -s dev`, or use --sandbox",
        ),
        *((prints, 0, WRONG_JSON) for prints in ("No version is set\n{}", "", "[]", "[1]", '"up"')),
        ('{"bill": {}}', 0, "got one without a cluster; run `multislice up -s dev`"),
        ('{"endpoint": "gke.example", "cluster": "dev", "jobs": [{"name": "one"}]}', 0, OTHER_VERSION),
        ('{"endpoint": "gke.example", "cluster": "dev", "jobs": ["one"]}', 0, OTHER_VERSION),
    ],
)
def test_a_stack_that_cannot_be_used_is_reported_with_the_reason(
    prints: str, status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pulumi(tmp_path, monkeypatch, prints=prints, status=status)
    with pytest.raises(Halt, match=message):
        deployed("dev", None)


@pytest.mark.parametrize(
    ("name", "deployed_stacks", "meant"), [("deb", "org/tpu-multislice/other", "did you mean dev? "), ("x", "dev", "")]
)
def test_a_stack_that_does_not_exist_is_reported_with_those_that_do(
    name: str, deployed_stacks: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    listed = json.dumps([{"name": deployed_stacks}])
    pulumi(tmp_path, monkeypatch, prints="")
    (tmp_path / "pulumi").write_text(f"#!/bin/sh\n[ $2 = ls ] && echo '{listed}' || exit 255\n")
    with pytest.raises(Halt) as halted:
        deployed(name, None)
    told, fix = str(halted.value).splitlines()
    assert f"multislice init {name}" in fix
    assert told.startswith(f"{meant}there is no stack {name!r}; stack files in ")
    assert told.endswith(f": dev, local, prod, staging; deployed: {deployed_stacks.rpartition('/')[2]}")


def test_a_stack_that_does_not_exist_is_not_the_fault_of_a_missing_pulumi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Halt, match="^there is no stack 'nope'; stack files in .*: dev, local, .*Pulumi cannot list"):
        deployed("nope", None)
    with pytest.raises(Halt, match="got 'nope'; choose one of: dev, local"):
        deployed("nope", tmp_path)


def test_a_stack_without_a_file_here_is_read_from_pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Environments may have been created on another machine."""
    pulumi(tmp_path, monkeypatch, prints='{"bill": {}}')
    with pytest.raises(Halt, match="expected stack 'pr-1' to be up, got one without a cluster"):
        deployed("pr-1", None)


def test_a_pulumi_that_cannot_be_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pulumi(tmp_path, monkeypatch, prints="{}")
    (tmp_path / "pulumi").write_text("no program")
    with pytest.raises(Halt, match="expected the program pulumi on the PATH, got"):
        deployed("dev", None)


@pytest.mark.parametrize(
    ("sandbox", "options"),
    [
        (None, "-s dev"),
        (Path(".sandbox"), "-s dev --sandbox"),
        (Path("/a b"), "-s dev --sandbox '/a b'"),
    ],
)
def test_the_options_of_a_command_select_the_stack_in_its_engine(sandbox: Path | None, options: str):
    assert replace(stack(), sandbox=sandbox).options == options


def test_missing_credentials_are_reported_with_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outputs = {"endpoint": "gke.example", "cluster": "dev", "jobs": [], "checkpoint_bucket": "gs://bucket"}
    pulumi(tmp_path, monkeypatch, prints=json.dumps(outputs))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(StacksError, match="gcloud components install gke-gcloud-auth-plugin"):
        deployed("dev", None)


THEIRS = JOBSETS.replace("research", "product")


@pytest.fixture
def server() -> Generator[Played]:
    """The stack's job `tiny` in `research`, and what members of `product` submitted there."""
    with playing(running()) as played:
        played.collections[THEIRS] = [api_objects.jobset(name="theirs")]
        yield played


@pytest.fixture
def two_teams(server: Played, tmp_path: Path) -> Deployed:
    """A stack of two teams."""
    return replace(standing.stack(server, tmp_path), outputs={"queues": {"research": "research", "product": "product"}})


@pytest.mark.parametrize("name", [None, "tiny", "research/tiny"])
def test_the_stacks_job_is_meant(two_teams: Deployed, name: str | None) -> None:
    assert two_teams.find(name) == JobRef("tiny", "research", "research")


@pytest.mark.parametrize("name", ["theirs", "product/theirs"])
def test_a_job_that_a_member_submitted_is_found(two_teams: Deployed, name: str) -> None:
    assert two_teams.find(name).full_name == "product/theirs"


def test_a_name_that_several_namespaces_have_is_refused(server: Played, two_teams: Deployed) -> None:
    server.collections[THEIRS] = [api_objects.jobset()]
    with pytest.raises(Halt, match="use research/tiny or product/tiny"):
        two_teams.find("tiny")
    assert two_teams.find("product/tiny").namespace == "product"


def test_of_several_kinds_with_one_name_a_jobset_is_meant() -> None:
    kinds = [JobRef("eval", "default", "", kind) for kind in ("Job", "JobSet", "RayJob")]
    for jobs in permutations(kinds):
        assert choose_job("namespace default", jobs, "eval").kind == "JobSet"
        rest = [job for job in jobs if job.kind != "JobSet"]
        assert choose_job("namespace default", rest, "default/eval").kind == "Job"
        with pytest.raises(Halt, match="use default/eval or other/eval$"):
            choose_job("namespace default", [*jobs, JobRef("eval", "other", "")], "eval")


def test_a_namespace_that_one_may_not_look_into_has_no_job_of_ones_own(server: Played, two_teams: Deployed) -> None:
    server.refused[f"{THEIRS}/tiny"] = 403
    assert two_teams.find("tiny").namespace == "research"


@pytest.mark.parametrize("name", ["other", "product/tiny", "elsewhere/tiny"])
def test_a_job_that_is_not_there_is_reported(two_teams: Deployed, name: str) -> None:
    with pytest.raises(Halt, match=f"got {name!r}"):
        two_teams.find(name)


def test_a_kubeconfig_selects_the_stack_that_owns_the_namespace(tmp_path: Path) -> None:
    record = Published.of("dev", parse(stack_values("local")), "research", "trainer@sha256:0")
    played = running()
    at = "/api/v1/namespaces/research/configmaps"
    played.collections[at] = [{"metadata": {"name": PUBLISHED, "uid": "1"}, "data": {PUBLISHED_KEY: record.text}}]
    chosen = Kubectl(kubeconfig(tmp_path, played), None, "research")
    with playing(played):
        found = deployed_by_kubeconfig(chosen)
        assert (found.stack, found.storage) == ("dev", "gs://sandbox-local-checkpoints")
        assert found.options == f"--kubeconfig {chosen.kubeconfig} --namespace research"
        # The only job of the namespace needs no name, whoever submitted it.
        assert found.job(None).full_name == "research/tiny"
        assert published_for(found, None) == record
        assert replace(observed_by_kubeconfig(chosen), api=found.api) == found
        with pytest.raises(Halt, match="expected one of the teams of stack dev .research., got 'sales'"):
            published_for(found, "sales")
        played.collections[at][0]["data"] = {PUBLISHED_KEY: '{"version": "99.0"}'}
        with pytest.raises(Halt, match="got version 99.0; "):
            deployed_by_kubeconfig(chosen)
        played.collections[at] = [{"metadata": {"name": "other", "uid": "2"}}]
        with pytest.raises(Halt, match="expected the namespace of a team, got 'research'"):
            deployed_by_kubeconfig(chosen)
        played.collections["/apis"] = []
        assert observed_by_kubeconfig(chosen).place == "namespace research"
        played.refused[f"{at}/{PUBLISHED}"] = 403
        assert "you may not list configmaps in namespace research" in str(observed_by_kubeconfig(chosen).foreign)
        with pytest.raises(Halt, match="a team that you are a member of"):
            deployed_by_kubeconfig(chosen)


def test_kubectl_is_advised_with_the_cluster_of_the_stack(tmp_path: Path) -> None:
    there, config = stack(ONE), str(tmp_path / "my config")
    assert there.reader.kubectl == "kubectl"
    in_sandbox = replace(there, sandbox=tmp_path)
    assert in_sandbox.reader.kubectl == f"KUBECONFIG={Site(tmp_path, 64).kubeconfig} kubectl"
    of_member = replace(there, kubectl=Kubectl(config, "team", "research"))
    assert of_member.reader.kubectl == f"kubectl --kubeconfig '{config}' --context team"
    with playing(running()) as played:
        seen = read_cluster(replace(of_member, api=client(played)), 0.0)
        assert submit_again(seen.reader, seen.jobs[-1]).startswith(f"kubectl --kubeconfig '{config}' --context team ")


def test_a_submitted_job_has_its_files_in_the_folder_of_its_team() -> None:
    ref, folder = JobRef("mine", "research", "research"), "teams/research/jobs/mine"
    assert folder_of(stack(ONE), JobStatus(ref, folder=folder)) == f"gs://bucket/{folder}"
    # A job may name any folder in its specification.
    assert folder_of(stack(ONE), JobStatus(ref, folder="teams/product/jobs/mine")) == "gs://bucket/mine"

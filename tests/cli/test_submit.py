"""What the words of `multislice submit` describe, and what it says of files that describe nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.answer import Halt
from cli.main import app
from cli.submit import Flags, prepare, read_request
from infra.stack.names import CONFIG_MAPS, PUBLISHED, PUBLISHED_KEY
from infra.stack.published import Published
from infra.stack.settings.read import parse
from tests.cli.api_server import playing
from tests.cli.standing import running, stack
from tests.infra.recording import stack_values

NONE = Flags(None, None, None, None, None, None)


def test_a_command_is_a_container_job_of_the_trainers_image(tmp_path: Path) -> None:
    flags = Flags("probe", "trillium:2", None, None, 3, 1.5)
    request = read_request(["python", "train.py", "--rate", "0.1"], flags)
    assert (request.name, request.own_image, request.team) == ("probe", True, None)
    assert request.section == {
        "kind": "container",
        "slices": {"group": "trillium", "count": 2},
        "priority": "normal",
        "max_restarts": 3,
        "max_hours": 1.5,
        "command": ["python", "train.py", "--rate", "0.1"],
    }


def test_a_file_is_a_section_of_a_stack_file_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: mine\nteam: research\npreset: tiny\n")
    request = read_request([str(path)], NONE)
    assert (request.name, request.team, request.section) == ("mine", "research", {"team": "research", "preset": "tiny"})


@pytest.mark.parametrize(
    ("words", "flags", "says"),
    [
        ([], NONE, "got nothing"),
        (["a.yaml", "b.yaml"], NONE, "got a.yaml b.yaml"),
        (["a.yaml"], Flags(None, "g:1", None, None, None, None), "got a.yaml --slices"),
        (["python"], Flags("probe", None, None, None, None, None), "such as trillium:2, got no --slices"),
        ([], Flags("probe", None, None, None, None, None), "no --slices\nexpected a command after --, got nothing"),
        (["python"], Flags("probe", ":2", None, None, None, None), "expected --slices GROUP:COUNT"),
        (["python"], Flags("probe", "trillium", None, None, None, None), "expected --slices GROUP:COUNT"),
        (["python"], Flags("probe", "trillium:0", None, None, None, None), "expected --slices GROUP:COUNT"),
        ([], Flags("probe", "trillium:1", None, None, None, None), "expected a command after --"),
    ],
)
def test_words_that_describe_no_job_are_refused(words: list[str], flags: Flags, says: str) -> None:
    with pytest.raises(Halt) as halted:
        read_request(words, flags)
    assert says in str(halted.value)


def test_a_file_that_does_not_exist_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(Halt, match="at .*none.yaml, which does not exist$") as halted:
        read_request([str(tmp_path / "none.yaml")], NONE)
    assert halted.value.exit_status == 1
    with pytest.raises(Halt, match="got: Is a directory"):
        read_request([str(tmp_path)], NONE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "contains [1, 2]; write the settings of one job"),
        ("", "is empty; write the settings of one job"),
        ("preset: tiny", "name: expected the name of the job, got nothing"),
        ("name: 7", "name: expected the name of the job, got 7"),
        ("a: [", "job.yaml:1: expected YAML with the settings of one job"),
        ("a: 1\na: 2", "job.yaml:1: name: expected the name of the job"),
        ("a: 1\na: 2", "job.yaml:2: the key 'a' is also in line 1"),
    ],
)
def test_a_file_that_is_no_job_is_refused_with_the_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    found = CliRunner().invoke(app, ["submit", str(path), "-n", "team"])
    assert (found.exit_code, words in found.stderr) == (1, True)


def test_errors_of_a_job_are_those_of_its_file_and_name_who_can_change_the_rest(tmp_path: Path) -> None:
    path, text = tmp_path / "job.yaml", "name: mine\npreset: tiny\nslices: {group: trillium, count: 9}\n"
    path.write_text(text)
    record = Published.of("dev", parse(stack_values("local")), "research", "trainer@sha256:0")
    about = {"metadata": {"name": PUBLISHED, "uid": "1"}, "data": {PUBLISHED_KEY: record.text}}
    played = running()
    played.collections[CONFIG_MAPS.format("research")] = [about]
    with playing(played):
        with pytest.raises(Halt) as halted:
            prepare(stack(played, tmp_path), read_request([str(path)], NONE))
        path.write_text(text.replace("mine", "Mine"))
        with pytest.raises(Halt, match=r"job.yaml:1: name: did you mean mine\?"):
            prepare(stack(played, tmp_path), read_request([str(path)], NONE))
    *errors, last = str(halted.value).splitlines()
    places = [error.removeprefix(f"{path}:").split(": ")[:2] for error in errors]
    assert places == [["1", "the job"], ["1", "teams.research.quota.trillium"], ["3", "slices.count"]]
    assert "owner of stack dev" in last


@pytest.mark.parametrize("command", ["status", "list", "logs", "explain", "cancel", "profile", "render"])
def test_commands_take_a_stack_or_a_kubeconfig(command: str, tmp_path: Path) -> None:
    words = [command, "job.yaml"] if command == "render" else [command]
    (tmp_path / "job.yaml").write_text("name: mine\n")
    words = [word.replace("job.yaml", str(tmp_path / "job.yaml")) for word in words]
    config = ["--kubeconfig", str(tmp_path / "none")]
    found = CliRunner().invoke(app, [*words, *config])
    assert (found.exit_code, "expected a kubeconfig of a cluster that answers" in found.stderr) == (1, True)
    both = CliRunner().invoke(app, [*words, *config, "-s", "local"])
    assert (both.exit_code, "and --stack" in both.stderr) == (1, True)
    assert CliRunner().invoke(app, words).exit_code == 1

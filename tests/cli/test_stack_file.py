import re
from pathlib import Path

import pytest

from cli import stack_file
from cli.answer import Halt
from sandbox.daemon import CHECKOUT

STACKS = CHECKOUT / "stacks"
ZONE = "    zone: us-east5-b\n"


def test_an_unknown_stack_is_refused_with_the_existing_ones_and_the_nearest_first(tmp_path: Path) -> None:
    for name in ("dev", "staging"):
        (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(Halt, match=r"got 'prd'; choose one of: dev, staging"):
        stack_file.find("prd", tmp_path)
    with pytest.raises(Halt, match="^did you mean staging"):
        stack_file.find("stagin", tmp_path)


def test_a_stack_is_found_by_its_name_among_those_of_the_repository() -> None:
    found = stack_file.find("local")
    assert found == STACKS / "Pulumi.local.yaml"
    assert list(stack_file.read(found).jobs) == ["tiny"]


def test_encrypted_values_are_known_by_name_and_refused_where_they_do_not_belong(tmp_path: Path) -> None:
    path, text = tmp_path / "Pulumi.secret.yaml", (STACKS / "Pulumi.local.yaml").read_text()
    with_token = f"{text}  tpu-multislice:secrets: {{HF_TOKEN: {{secure: 'v1:abc:def'}}}}\n"
    path.write_text(with_token)
    assert list(stack_file.read(path).secrets) == ["HF_TOKEN"]

    path.write_text(with_token.replace("team: research", "team: {secure: 'v1:abc:def'}"))
    with pytest.raises(Halt, match=r"job\.team: expected a plain value, .* got a Pulumi secret"):
        stack_file.read(path)


@pytest.mark.parametrize(
    "text", ["config: [", "just text", "config: 3", "", "config:", "[1, 2]", "config: [1]", "a: 1"]
)
def test_a_file_that_is_no_stack_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.broken.yaml"
    path.write_text(text)

    with pytest.raises(Halt, match=r"Pulumi\.broken\.yaml:1: .*YAML with a mapping `config`") as caught:
        stack_file.read(path)

    assert "pydantic" not in str(caught.value)
    assert "_StackFile" not in str(caught.value)


def spoilt(tmp_path: Path, old: str, new: str) -> Path:
    """The stack file of the sandbox with another text in place of one."""
    text = (STACKS / "Pulumi.local.yaml").read_text()
    assert old in text
    path = tmp_path / "Pulumi.broken.yaml"
    path.write_text(text.replace(old, new))
    return path


def refused(path: Path) -> str:
    with pytest.raises(Halt) as caught:
        stack_file.read(path)
    return str(caught.value)


def test_a_prefix_that_is_missing_hides_no_other_fault(tmp_path: Path) -> None:
    path = spoilt(tmp_path, "tpu-multislice:slices:", "slices:")
    path.write_text(path.read_text().replace("preset: tiny", "preset: huge"))
    answer = refused(path)
    assert "tpu-multislice:slices" in answer
    assert "job.preset" in answer


NINES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
TWOS = [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 1200)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a0: &a0 [x, x, x, x, x, x, x, x, x]", *NINES, "config: *a9"], "aliases"),
        (["a0: &a0 [x, x]", *TWOS, "config: *a1199"], "expected YAML"),
        (["config: &here", "  tpu-multislice:job: *here"], "aliases"),
    ],
    ids=["they grow without bound", "more values than a float can count", "an alias within itself"],
)
def test_aliases_that_would_be_too_large_are_refused_before_they_are_read(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "Pulumi.bomb.yaml"
    path.write_text("\n".join(lines))
    answer = refused(path)
    assert message in answer
    assert len(answer) < 500


@pytest.mark.parametrize(
    ("old", "new", "answers"),
    [
        ("    trillium:\n      generation", "    3:\n      generation", ["slices.3: expected a name"]),
        ("        trillium: 16", "        true: 16", ["teams.research.quota"]),
        ("config:", "confg:", ["did you mean config?"]),
        (ZONE, f"{ZONE}    zone: us-east5-c\n", ["yaml:8: the key 'zone' is also in line 7"]),
        ("  tpu-multislice:slices:", "  slices:", ["did you mean tpu-multislice:slices?", "1 error."]),
        ("  tpu-multislice:slices:", "  tpu-multslice:slices:", ["did you mean tpu-multislice:slices?"]),
    ],
    ids=["a number", "a word of YAML", "misspelt", "given twice", "without its prefix", "with a misspelt prefix"],
)
def test_a_wrong_key_is_reported_by_its_name(tmp_path: Path, old: str, new: str, answers: list[str]) -> None:
    reported = refused(spoilt(tmp_path, old, new))
    assert [answer for answer in answers if answer not in reported] == []


def test_what_other_programs_keep_in_the_file_is_left_to_them(tmp_path: Path) -> None:
    others = "  gcp:region: x\n  7: 8\n  tpu-multislice:image:"
    stack_file.read(spoilt(tmp_path, "  tpu-multislice:image:", others))


def test_a_file_that_is_far_too_large_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.large.yaml"
    path.write_text("config:\n" + "  x: y\n" * 1_000_000)
    assert "larger than" in refused(path)


def test_numbers_and_words_are_read_as_pulumi_reads_them(tmp_path: Path) -> None:
    path = spoilt(
        tmp_path, "preset: tiny", "preset: tiny\n    training: {steps: 1e3, optimizer: {learning_rate: 3e-4}}"
    )
    assert "optimizer" in refused(path)
    path = spoilt(tmp_path, "preset: tiny", "preset: tiny\n    training: {steps: 1e3}")
    assert stack_file.read(path).training_jobs["tiny"].training == {"steps": 1000}


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_file_is_not_offered_as_a_stack(kind: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.prod.yaml").touch()
    path = tmp_path / "Pulumi.dev.yaml"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(Halt) as caught:
        stack_file.find("dev", tmp_path)
    assert kind in str(caught.value)
    assert stack_file.names(tmp_path) == ["prod"]


def test_values_of_a_starter_without_the_prefix_are_reported_as_such(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text((STACKS / "Pulumi.dev.yaml").read_text().replace("tpu-multislice:", ""))
    with pytest.raises(Halt) as caught:
        stack_file.read(path)
    assert str(caught.value).count("rename it to tpu-multislice:") == 5
    assert "5 errors. " in str(caught.value)


def lines_of(answer: str) -> list[tuple[int, str]]:
    """Return the line and the path of each error."""
    found = re.findall(r"^\S+Pulumi\.broken\.yaml:(\d+): (?:did you mean .*?\? )?([^:\n]+)", answer, re.MULTILINE)
    return [(int(line), path) for line, path in found]


def test_all_errors_of_a_file_are_reported_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    path = spoilt(tmp_path, "preset: tiny", "preset: huge\n    mesh: 2x8\n    training: {steps: 10,000}")
    text = path.read_text().replace(ZONE, f"{ZONE}    zone: us-east5-c\n").replace("topology: 2x4", "topology: 3x5")
    path.write_text(text.replace("trillium: 16", "trillium: x").replace("  system_nodes: 1", "  system_nodes: one"))
    found = lines_of(refused(path))
    assert found == [
        (8, "the key 'zone' is also in line 7; remove one of them"),
        (14, "cluster.system_nodes"),
        (16, "slices.trillium"),
        (25, "teams.research.quota.trillium.chips"),
        (35, "job.preset"),
        (36, "job.mesh"),
        (37, "steps"),
    ]


def test_an_error_of_a_missing_key_has_the_line_of_its_section(tmp_path: Path) -> None:
    assert lines_of(refused(spoilt(tmp_path, "    preset: tiny\n", ""))) == [(28, "job.preset")]


def test_an_error_of_a_swept_value_has_the_line_of_the_sweep(tmp_path: Path) -> None:
    path = spoilt(tmp_path, "    preset: tiny\n", "    preset: tiny\n    sweep:\n      training.steps: [1, -1]\n")
    path.write_text(path.read_text().replace("job:\n    name: tiny\n", "jobs:\n   tiny:\n"))
    assert lines_of(refused(path)) == [(36, "jobs.tiny.training.steps")]


def test_an_error_in_a_section_with_a_misspelt_name_has_its_own_line(tmp_path: Path) -> None:
    path = spoilt(tmp_path, "tpu-multislice:cloud:", "tpu-multislice:clouds:")
    path.write_text(path.read_text().replace("region: us-east5", "region: us-east-5"))
    assert lines_of(refused(path)) == [(4, "clouds"), (6, "cloud.region")]


def test_bytes_that_are_not_utf_8_have_a_line(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.broken.yaml"
    path.write_bytes(
        (STACKS / "Pulumi.local.yaml").read_text().replace("preset: tiny", "preset: t\u00efny").encode("latin1")
    )
    assert "Pulumi.broken.yaml:34: expected YAML with a mapping `config`, got: byte 0xef is not UTF-8" in refused(path)


def test_a_path_below_the_working_folder_is_shown_as_the_user_would_type_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spoilt(tmp_path, "preset: tiny", "preset: huge")
    monkeypatch.chdir(tmp_path)
    assert refused(path).startswith("Pulumi.broken.yaml:34: job.preset: ")

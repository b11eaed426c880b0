from pathlib import Path

import pytest

from cli import stack_file
from cli.halt import Halt
from sandbox.daemon import CHECKOUT

STACKS = CHECKOUT / "stacks"


def test_an_unknown_stack_is_refused_with_those_there_are(tmp_path: Path) -> None:
    for name in ("dev", "local"):
        (tmp_path / f"Pulumi.{name}.yaml").touch()

    with pytest.raises(Halt, match=r"got 'prd'; choose one of: dev, local"):
        stack_file.find("prd", tmp_path)


def test_a_stack_is_found_by_its_name_among_those_of_the_repository() -> None:
    found = stack_file.find("local")
    assert found == STACKS / "Pulumi.local.yaml"
    assert list(stack_file.read(found).jobs) == ["tiny"]


def test_every_fault_of_the_settings_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.broken.yaml"
    text = (STACKS / "Pulumi.local.yaml").read_text()
    path.write_text(text.replace("topology: 2x4", "topology: 3x5").replace("preset: tiny", "preset: huge"))

    with pytest.raises(Halt) as caught:
        stack_file.read(path)

    assert "'3x5' is not a topology" in str(caught.value)
    assert "job.preset" in str(caught.value)
    assert "Nothing was started" in str(caught.value)


def test_encrypted_values_are_known_by_name_and_refused_where_they_do_not_belong(tmp_path: Path) -> None:
    path, text = tmp_path / "Pulumi.secret.yaml", (STACKS / "Pulumi.local.yaml").read_text()
    with_token = f"{text}  tpu-multislice:secrets: {{HF_TOKEN: {{secure: 'v1:abc:def'}}}}\n"
    path.write_text(with_token)
    assert list(stack_file.read(path).secrets) == ["HF_TOKEN"]

    path.write_text(with_token.replace("team: research", "team: {secure: 'v1:abc:def'}"))
    with pytest.raises(Halt, match=r"job\.team: expected a plain value, .* got a Pulumi secret"):
        stack_file.read(path)


@pytest.mark.parametrize("text", ["config: [", "just text", "config: 3"])
def test_a_file_that_is_no_stack_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.broken.yaml"
    path.write_text(text)

    with pytest.raises(Halt, match=r"Pulumi\.broken\.yaml must be YAML with a mapping `config`"):
        stack_file.read(path)

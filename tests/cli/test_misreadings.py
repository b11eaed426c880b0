"""What people write in a stack file instead of what it expects, and what the program answers."""

from pathlib import Path

from cli import stack_file
from cli.answer import Halt
from sandbox.daemon import CHECKOUT

STACKS = CHECKOUT / "stacks"
LOCAL = (STACKS / "Pulumi.local.yaml").read_text()
JOB = LOCAL.index("  tpu-multislice:job:")
_TAGGED = "us-docker.pkg.dev/a/b/c:v1"


def answer(tmp_path: Path, text: str, stack: str = "local") -> str:
    """Return the errors of a stack file; empty if it is valid."""
    path = tmp_path / f"Pulumi.{stack}.yaml"
    path.write_text(text)
    try:
        stack_file.read(path)
    except Halt as error:
        return str(error)
    return ""


def changed(old: str, new: str) -> str:
    assert old in LOCAL
    return LOCAL.replace(old, new)


DEV = (STACKS / "Pulumi.dev.yaml").read_text()
_SHORT = "  tpu-multislice:job:\n    slices: {group: trillium, count: 2}\n    preset: tiny\n"


def test_a_job_needs_no_more_than_a_preset_and_slices(tmp_path: Path) -> None:
    assert answer(tmp_path, f"{LOCAL[:JOB]}{_SHORT}") == ""


def test_a_number_with_a_comma_in_braces_is_read_as_one(tmp_path: Path) -> None:
    found = answer(tmp_path, changed("preset: tiny\n", "preset: tiny\n    training: {steps: 10,000}\n"))
    assert "steps: YAML reads 10,000 in braces as two entries; write 10000" in found
    assert "1 error. " in found


def test_an_image_by_tag_is_answered_with_the_command_that_prints_its_digest(tmp_path: Path) -> None:
    text = LOCAL[: LOCAL.index("    reference:")] + f"    reference: {_TAGGED}\n{LOCAL[JOB:]}"
    assert f"gcloud artifacts docker images describe {_TAGGED} --format=" in answer(tmp_path, text)


def test_a_count_beside_the_values_of_a_starter_is_answered_with_what_a_starter_has(tmp_path: Path) -> None:
    found = answer(tmp_path, f"{DEV}  tpu-multislice:count: 4\n", "dev")
    assert "capacity, generation, project, region, topology, zone" in found
    assert "write the section slices, which has count" in found
    assert "did you mean" not in found
    assert "write capacity: spot" in answer(tmp_path, f"{DEV}  tpu-multislice:spot: yes\n", "dev")

"""What people write in a stack file instead of what it expects, and what the program answers."""

from pathlib import Path

import pytest

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


def in_job(*lines: str) -> str:
    return changed("    preset: tiny\n", "".join(f"    {line}\n" for line in ("preset: tiny", *lines)))


DEV = (STACKS / "Pulumi.dev.yaml").read_text()
_SHORT = "  tpu-multislice:job:\n    slices: {group: trillium, count: 2}\n"
_ON_CLOUD = LOCAL.replace("project: sandbox", "project: acme")


@pytest.mark.parametrize(
    "text",
    [
        changed("topology: 2x4", "topology: v6e-8"),
        changed("existing_run: resume", "existing_run: new"),
        f"{LOCAL[:JOB]}{_SHORT}    preset: tiny\n",
    ],
    ids=["a slice by Cloud TPU's name", "existing_run new", "a job with a preset and slices only"],
)
def test_what_can_only_mean_one_thing_is_accepted(text: str, tmp_path: Path) -> None:
    assert answer(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed("capacity: on-demand", "spot: yes"), "slices.trillium.spot: * write capacity: spot"),
        (changed("name: tiny", "name: Tiny"), "job.name: did you mean tiny?"),
        (changed("name: tiny", 'name: "tiny "'), "job.name: did you mean tiny?"),
        (in_job("training: {steps: 10,000}"), "steps: YAML reads 10,000 in braces as two entries; write 10000"),
        (in_job("training: {steps: 1M}"), "job.training.steps: * write 1000000"),
        (in_job("max_hours: 4h"), "job.max_hours: * write 4"),
        (
            in_job("data: {source: python-stdlib, max_bytes: 9, held_out_fraction: 1%}"),
            "held_out_fraction: * write 0.01",
        ),
        (
            changed("      count: 2\n      cap", "      count: 2\n      boot_disk_gb: 200Gi\n      cap"),
            "gb: * write 200",
        ),
        (f"{LOCAL}  tpu-multislice:budget: {{usd_total: $500}}\n", "budget.usd_total: * write 500"),
        (in_job("mesh: 2x8"), "job.mesh: * write mesh: {replica: 2, fsdp: 8}"),
        (changed("namespace: research", "namespace: default"), "reserved by Kubernetes"),
        (changed("region: us-east5", "region: us-east-5"), "cloud.region: did you mean us-east5?"),
    ],
)
def test_the_answer_says_what_to_write_and_nothing_else(text: str, words: str, tmp_path: Path) -> None:
    found = answer(tmp_path, text)
    assert "1 error. " in found
    assert [part for part in words.split("*") if part not in found] == []


def test_an_image_by_tag_is_answered_with_the_command_that_prints_its_digest(tmp_path: Path) -> None:
    text = LOCAL[: LOCAL.index("    reference:")] + f"    reference: {_TAGGED}\n{LOCAL[JOB:]}"
    assert f"gcloud artifacts docker images describe {_TAGGED} --format=" in answer(tmp_path, text)


def test_a_count_beside_the_values_of_a_starter_is_answered_with_what_a_starter_has(tmp_path: Path) -> None:
    found = answer(tmp_path, f"{DEV}  tpu-multislice:count: 4\n", "dev")
    assert "capacity, generation, project, region, topology, zone" in found
    assert "write the section slices, which has count" in found
    assert "did you mean" not in found
    assert "write capacity: spot" in answer(tmp_path, f"{DEV}  tpu-multislice:spot: yes\n", "dev")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (changed("zone: us-east5-b", "zone: us-east5-z"), "cloud.zone"),
        (changed("deletion_protection: false", 'deletion_protection: "false"'), "cluster.deletion_protection"),
        (
            _ON_CLOUD.replace(
                "    preset: tiny\n",
                "    preset: tiny\n    data: {source: token-file, path: /home/me/tokens, held_out_fraction: 0.1}\n",
            ),
            "job.data.path",
        ),
    ],
)
def test_what_would_fail_only_in_google_cloud_is_refused(text: str, path: str, tmp_path: Path) -> None:
    found = answer(tmp_path, text)
    assert f": {path}: " in found
    assert "1 error. " in found

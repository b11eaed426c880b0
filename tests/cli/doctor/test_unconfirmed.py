"""The assumptions that no run on Google Cloud has confirmed, of the stacks that depend on them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.doctor.unconfirmed import unconfirmed
from cli.main import app
from infra.stack.settings.read import parse
from tests.infra.recording import Values, stack_values


def subjects(values: Values) -> set[str]:
    return {each.subject for each in unconfirmed(parse(values))}


def test_a_stack_is_told_of_what_it_uses_and_of_nothing_else() -> None:
    values = stack_values("dev")
    values["slices"]["trillium"]["capacity"] = "spot"
    optional = {"notice time of spot", "flex-start", "queued provisioning", "existing VPC or cluster", "Pathways"}
    assert subjects(values) & optional == {"notice time of spot"}
    values["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 4}
    assert subjects(values) & optional == {"flex-start"}


def test_only_a_job_on_several_slices_needs_what_joins_them() -> None:
    values = stack_values("dev")
    assert values["job"]["slices"]["count"] > 1
    assert "`MEGASCALE_*`" in subjects(values)
    values["job"]["slices"]["count"] = 1
    values["job"]["slices"].pop("min_count", None)
    assert "`MEGASCALE_*`" not in subjects(values)


@pytest.mark.parametrize(("options", "listed"), [((), True), (("--sandbox", "nowhere"), False)])
def test_doctor_lists_them_for_a_stack_in_google_cloud_only(
    options: tuple[str, ...], listed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    answer = CliRunner().invoke(app, ["doctor", "-s", "dev", *options]).stdout
    assert ("Not confirmed on Google Cloud" in answer) is listed

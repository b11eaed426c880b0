"""The job of docs/how-to/your-trainer.md can be deployed."""

import yaml

from infra.review.obstacles import placeholders
from infra.stack.names import SUPERVISOR
from infra.stack.settings.read import parse
from tests.documents.pages import DOCS, blocks
from tests.infra.recording import stack_values


def test_its_section_replaces_the_job_of_the_stack_local_and_has_no_example_value() -> None:
    values = stack_values("local")
    del values["job"]
    shown, supervised = blocks((DOCS / "how-to" / "your-trainer.md").read_text(), "yaml")
    values["jobs"] = yaml.safe_load(shown)["tpu-multislice:jobs"]
    settings = parse(values)
    assert (list(settings.jobs), placeholders(settings)) == (["first"], [])
    values["jobs"]["first"] |= yaml.safe_load(supervised)
    assert parse(values).jobs["first"].command[2] == SUPERVISOR  # pyright: ignore[reportAttributeAccessIssue]

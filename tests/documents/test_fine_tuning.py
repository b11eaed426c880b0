"""The stack file in docs/how-to/fine-tuning.md is accepted."""

import yaml

from infra.stack.settings.read import parse
from infra.stack.submission import job_spec
from tests.documents.pages import DOCS, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values

TEXT = (DOCS / "how-to" / "fine-tuning.md").read_text()


def test_its_stack_file_is_accepted() -> None:
    values = stack_values("dev")
    (shown,) = blocks(TEXT, "yaml")
    values["job"] |= yaml.safe_load(shown)["job"]
    spec = job_spec(parse(values), only_training(parse(values)))
    assert spec.training.lora
    assert spec.training.lora.rank == 16

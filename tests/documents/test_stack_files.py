"""The settings that pages show are accepted, and mean what the pages say."""

from typing import Any

import pytest
import yaml

from infra.review.obstacles import placeholders
from infra.stack.names import SUPERVISOR
from infra.stack.settings.jobs import ContainerJob, TrainingJob
from infra.stack.settings.read import parse
from infra.stack.settings.stack import Settings
from infra.stack.settings.values import HIDDEN
from infra.stack.submission import job_spec
from tests.documents.pages import DOCS, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import Values, stack_values
from workloads.spec import WANDB_KEY_VARIABLE, JobSpec, token_folders


def shown(page: str, language: str = "yaml") -> list[Any]:
    """Return the settings that a page of "How to" shows."""
    return [yaml.safe_load(block) for block in blocks((DOCS / "how-to" / page).read_text(), language)]


def with_jobs(job: str = "pretrain", added: Values | None = None) -> Settings:
    """Return the stack of the page on jobs, with settings added to one of its jobs."""
    values = stack_values("dev") | shown("jobs.md")[0] | {"secrets": {WANDB_KEY_VARIABLE: HIDDEN}}
    del values["job"]
    values["jobs"][job] |= added or {}
    return parse(values)


def changed(settings: Any) -> tuple[TrainingJob, JobSpec]:
    """Return the job of the stack `dev` with the settings of its job that a page shows."""
    values = stack_values("dev")
    values["job"] |= settings["job"]
    found = parse(values)
    return only_training(found), job_spec(found, only_training(found))


@pytest.mark.parametrize(
    ("block", "paths"),
    [
        (0, {"data": "gs://BUCKET/tokens"}),
        (1, {"data.datasets.code": "gs://BUCKET/code", "data.datasets.web": "gs://BUCKET/web"}),
    ],
)
def test_data_are_the_folders_that_the_page_names(block: int, paths: dict[str, str]) -> None:
    job, _ = changed(shown("data.md")[block])
    assert job.data
    assert {setting: folder.path for setting, folder in token_folders(job.data).items()} == paths


def test_weights_adapters_and_another_decoder_are_accepted() -> None:
    (weights,), (decoder,), (adapters,) = shown("models.md"), shown("models.md", "yml"), shown("fine-tuning.md")
    assert changed(weights)[0].initial_weights == "gs://BUCKET/weights"
    assert changed(decoder)[1].model.window("local") == 512
    lora = changed(adapters)[1].training.lora
    assert lora
    assert lora.rank == 16


def test_jobs_and_what_pages_add_to_them_are_accepted() -> None:
    _, sweep, learning_rate, _, heartbeat, *_ = shown("jobs.md")
    assert {name: type(job) for name, job in with_jobs().jobs.items()} == {
        "pretrain": TrainingJob,
        "probe": ContainerJob,
    }
    runs = with_jobs(added=sweep).training_jobs
    assert len(runs) == 6
    assert runs["pretrain-1-2"].training == {"global_batch": 128, "seed": 2}
    slower = with_jobs(added=learning_rate)
    spec = job_spec(slower, slower.training_jobs["pretrain"])
    assert (spec.optimizer.learning_rate, spec.storage.allow_changes) == (0.001, ("optimizer.learning_rate",))
    assert with_jobs("probe", heartbeat).jobs["probe"] != with_jobs().jobs["probe"]
    assert with_jobs(added=shown("metrics.md")[0]).training_jobs["pretrain"].trackers.wandb


def test_the_section_of_an_own_trainer_replaces_the_job_of_the_stack_local_and_has_no_example_value() -> None:
    values = stack_values("local")
    del values["job"]
    own, supervised = shown("your-trainer.md")
    values["jobs"] = own["tpu-multislice:jobs"]
    settings = parse(values)
    assert (list(settings.jobs), placeholders(settings)) == (["first"], [])
    values["jobs"]["first"] |= supervised
    job = parse(values).jobs["first"]
    assert isinstance(job, ContainerJob)
    assert job.command[2] == SUPERVISOR

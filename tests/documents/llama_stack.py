"""The stack of docs/tutorials/llama-on-v6e.md, what the preflight of its job found, and the figures of the tutorial.

`python -m tests.documents.llama_stack` runs the preflight again, which compiles for minutes.
"""

import re
import shlex
import tempfile
from contextlib import chdir
from pathlib import Path

import yaml
from typer.testing import CliRunner

from cli import stack_file
from cli.main import app
from cli.preflight import run
from infra.review.answers import answers
from infra.review.review import Known, Review, review
from infra.review.table import as_text
from infra.stack.settings.read import parse
from infra.stack.settings.stack import Settings
from infra.stack.submission import job_specs
from tests.documents.pages import DOCS
from tests.infra.recording import values_of
from tests.infra.review.known import NOW
from tests.made_part import with_part
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult
from workloads.spec import JobSpec
from workloads.terminal import Terminal

TUTORIAL = DOCS / "tutorials" / "llama-on-v6e.md"
RECORDED = Path(__file__).parent / "llama_preflight.json"
"""The result that `multislice preflight -s llama` keeps."""


def llama() -> Settings:
    """The stack file that a reader of the tutorial has after its step 3."""
    text = TUTORIAL.read_text()
    [command] = re.findall(r"^multislice (init .*)$", text, re.MULTILINE)
    [written] = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        made = CliRunner().invoke(app, shlex.split(command))
        assert made.exit_code == 0, made.output
        values = values_of(Path("stacks/Pulumi.llama.yaml"))
    replaced = values.keys() - {"job", "jobs"}
    return parse({name: values[name] for name in replaced} | stack_file.sections(yaml.safe_load(written)))


def llama_job() -> JobSpec:
    [spec] = job_specs(llama()).values()
    return spec


def preflight() -> PreflightResult:
    """What the preflight of the stack found when it was recorded."""
    return PreflightResult.model_validate_json(RECORDED.read_text())


def llama_review() -> Review:
    """The review that the reader sees after the preflight."""
    settings = llama()
    [job] = settings.jobs
    return review("llama", settings, Known(NOW, preflights={job: preflight()}, deployed=None, workloads=None))


def with_figures(document: str) -> str:
    """Return the tutorial with the figures of the review."""
    found = llama_review()
    [job], [pace] = found.jobs, (each for each in found.jobs[0].paces if each.kernel_efficiency == QUOTED_EFFICIENCY)
    assert job.plan.training
    assert pace.usd
    minutes = round(pace.days * 24 * 60)
    text = (
        f"Two slices cost ${found.bill.at_once.usd_per_hour:.0f} an hour while they exist. By estimate,"
        f" {job.plan.training.steps:,} steps take {minutes // 60} h {minutes % 60:02} min, so the run costs about"
        f" ${pace.usd:.0f} when nothing preempts it.\n"
    )
    shown = f"```text\n{as_text(answers(found))}\n```\n"
    document = with_part(document, *_part("figures", f"\n{text}\n"))
    return with_part(document, *_part("review", f"\n{shown}\n"))


def _part(name: str, made: str) -> tuple[str, str, str]:
    return f"<!-- {name}: made by tests/documents/llama_stack.py -->\n", made, f"<!-- end of {name} -->\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        found = run(llama_job(), Path(cache), None, Terminal(stderr=True))
    RECORDED.write_text(f"{found.model_dump_json(indent=1)}\n")

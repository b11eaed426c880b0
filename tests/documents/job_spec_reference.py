"""Renders the reference of the job specification from its classes."""

import ast
import inspect

from multislice_run import pod
from tests.documents.model_fields import COLUMNS, meanings, models, one_line, table, texts_below
from tests.documents.pages import MADE
from workloads.spec import JobSpec, training

_HEAD = f"""# The job specification

{MADE.format("tests/documents/job_spec_reference.py")}

The job specification is the trainer's configuration: one JSON object in the environment of each pod, and in the
manifest of each run and checkpoint. You do not write it. The Pulumi program derives it from the
[stack file](stack-file.md), a preset and the [TPU slices](tpu-table.md). The trainer refuses unknown keys, and sizes
that do not fit together; the message then lists the meshes that fit.
"""


def reference() -> str:
    """Return the page, with a table for each section."""
    said = meanings(JobSpec)
    whole = {name: field for name, field in JobSpec.model_fields.items() if not models(field.annotation)}
    parts = [_HEAD, f"\n## Top-level fields\n\n{COLUMNS}"]
    parts += [table(name, field, said.get(name, "")) for name, field in whole.items()]
    for name, field in JobSpec.model_fields.items():
        if name not in whole:
            about = [one_line(model.__doc__) for model in models(field.annotation)]
            rows = table(name, field, said.get(name, ""))
            parts.append(f"\n## {name}\n\n{about[0] + '\n\n' if len(about) == 1 else ''}{COLUMNS}{rows}")
    return "".join([*parts, _choices(), _environment()])


def _choices() -> str:
    """Return the values of the settings whose types, not whose fields, have the docstring."""
    texts = texts_below(ast.parse(inspect.getsource(training)).body)
    shown = "".join(f"\n### {name.lower()}\n\n```text\n{texts[name]}\n```\n" for name in ("Remat", "Attention"))
    return f"\n## Values of training settings\n{shown}"


def _environment() -> str:
    texts = texts_below(ast.parse(inspect.getsource(pod)).body)
    names = [name for name in texts if name.endswith("_VARIABLE")]
    shown = {getattr(pod, name): one_line(texts[name]).removeprefix("Environment variable ") for name in names}
    rows = "".join(f"| `{name}` | {meaning[0].upper()}{meaning[1:]} |\n" for name, meaning in shown.items())
    return f"\n## Environment variables of a pod\n\n| Variable | Meaning |\n|---|---|\n{rows}"

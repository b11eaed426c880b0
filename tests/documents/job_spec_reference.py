"""The reference of the job specification, made from its classes."""

import ast
import inspect

from tests.documents.model_fields import COLUMNS, meanings, models, one_line, table, texts_below
from tests.documents.pages import MADE
from workloads.spec import JobSpec, pod, training

_HEAD = f"""# The job specification

{MADE.format("tests/documents/job_spec_reference.py")}

What the program tells the trainer: one JSON object in the environment of each pod, and in the manifest of every run
and checkpoint. The program derives it from the [stack file](stack-file.md), a preset and the
[TPU table](tpu-table.md); nobody writes it by hand. Unknown keys are refused, and so are sizes that do not fit
together, with the meshes that would.
"""


def reference() -> str:
    """The whole text, a table for each section."""
    said = meanings(JobSpec)
    whole = {name: field for name, field in JobSpec.model_fields.items() if not models(field.annotation)}
    parts = [_HEAD, f"\n## Of the whole job\n\n{COLUMNS}"]
    parts += [table(name, field, said.get(name, "")) for name, field in whole.items()]
    for name, field in JobSpec.model_fields.items():
        if name not in whole:
            about = [one_line(model.__doc__) for model in models(field.annotation)]
            rows = table(name, field, said.get(name, ""))
            parts.append(f"\n## {name}\n\n{about[0] + '\n\n' if len(about) == 1 else ''}{COLUMNS}{rows}")
    return "".join([*parts, _choices(), _environment()])


def _choices() -> str:
    """The words of settings whose type, and not whose field, says what they mean."""
    texts = texts_below(ast.parse(inspect.getsource(training)).body)
    told = "".join(f"\n### {name.lower()}\n\n```text\n{texts[name]}\n```\n" for name in ("Remat", "Attention"))
    return f"\n## Words of training\n{told}"


def _environment() -> str:
    texts = texts_below(ast.parse(inspect.getsource(pod)).body)
    names = [name for name in texts if name.endswith("_VARIABLE")]
    told = {getattr(pod, name): one_line(texts[name]).removeprefix("Environment variable ") for name in names}
    rows = "".join(f"| `{name}` | {meaning[0].upper()}{meaning[1:]} |\n" for name, meaning in told.items())
    return f"\n## The pod's environment\n\n| variable | meaning |\n|---|---|\n{rows}"

"""Renders the reference of the stack file from the classes that read it."""

from infra.settings.schema import Options
from infra.settings.stack import Settings
from tests.documents.model_fields import COLUMNS, about, meanings, models, table

_HEAD = """# The stack file

Every setting of the files in `stacks/`. Each section below is a key `tpu-multislice:SECTION` under `config`. `NAME` is
a name of your choice. All errors in a stack file are reported at once, before any cloud API is called.
Editors with a YAML language server complete and check the files, because they name `stacks/schema.json`.
"""


def reference() -> str:
    """Return the page, with a table for each section."""
    said = meanings(Settings)
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        if name not in Options.model_fields:
            rows = table(name, field, said.get(name, ""))
            parts.append(f"\n## {name}\n\n{about(models(field.annotation))}{COLUMNS}{rows}")
    parts.append(f"\n## Top-level settings\n\n{COLUMNS}")
    parts += [table(name, field, said.get(name, "")) for name, field in Options.model_fields.items()]
    return "".join(parts)

"""Renders the reference of the stack file from the classes that read it."""

from infra.stack.settings.schema import Options
from infra.stack.settings.stack import Settings
from infra.stack.settings.starter import Starter
from tests.documents.model_fields import COLUMNS, about, meanings, models, table

_HEAD = """# The stack file

Every setting of the files in `stacks/`. Each section below is a key `tpu-multislice:SECTION` under `config`. `NAME` is
a name of your choice. All errors in a stack file are reported at once, before any cloud API is called.
Editors with a YAML language server complete and check the files, because they name `stacks/schema.json`.
"""
_STARTER = f"""
## A first stack

These values are a whole stack: they become its sections. A section that the file has as well replaces that one.

{COLUMNS}"""


def reference() -> str:
    """Return the page, with a table for each section."""
    said, of_starter = meanings(Settings), meanings(Starter)
    parts = [_HEAD, _STARTER]
    parts += [table(name, field, of_starter.get(name, "")) for name, field in Starter.model_fields.items()]
    for name, field in Settings.model_fields.items():
        if name not in Options.model_fields:
            rows = table(name, field, said.get(name, ""))
            parts.append(f"\n## {name}\n\n{about(models(field.annotation))}{COLUMNS}{rows}")
    parts.append(f"\n## Top-level settings\n\n{COLUMNS}")
    parts += [table(name, field, said.get(name, "")) for name, field in Options.model_fields.items()]
    return "".join(parts)

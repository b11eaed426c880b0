"""The reference of the stack file, made from the classes that read it."""

from infra.settings.schema import Options
from infra.settings.stack import Settings
from tests.documents.model_fields import COLUMNS, about, meanings, models, table

_HEAD = """# The stack file

Every setting of the files in `stacks/`, below `config` as `tpu-multislice:SECTION`. `NAME` stands
for a name of your choice. A fault in any of them is told before a provider is asked for anything.
"""


def reference() -> str:
    """The whole text, a table for each section."""
    said = meanings(Settings)
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        if name not in Options.model_fields:
            rows = table(name, field, said.get(name, ""))
            parts.append(f"\n## {name}\n\n{about(models(field.annotation))}{COLUMNS}{rows}")
    parts.append(f"\n## Of the whole stack\n\n{COLUMNS}")
    parts += [table(name, field, said.get(name, "")) for name, field in Options.model_fields.items()]
    return "".join(parts)

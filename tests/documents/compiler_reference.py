"""Renders the options in docs/reference/compiler.md from the table that the trainer compiles with."""

import json
from collections.abc import Iterable

from tests.made_part import with_part
from workloads.spec.compiler import COMPILER_OPTIONS, MULTISLICE_ARGUMENTS, Row

BEGIN, END = "<!-- tables: made by tests/documents/compiler_reference.py -->\n", "<!-- end of tables -->\n"


def with_tables(document: str) -> str:
    """Return the document with the current options."""
    parts = ["\n## Compiler options by generation\n", *_tables(COMPILER_OPTIONS), "\n## libtpu arguments\n"]
    parts += ["\nThese apply only to jobs on more than one slice.\n", *_tables(MULTISLICE_ARGUMENTS), "\n"]
    return with_part(document, BEGIN, "".join(parts), END)


def _tables(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        values = {generation: json.dumps(value) for generation, value in row.values.items()}
        quick = {generation: json.dumps(value) for generation, value in row.quick.items()}
        defaults = ", ".join(
            f"{generation} `{value}`{f' (quick: `{quick[generation]}`)' if generation in quick else ''}"
            for generation, value in values.items()
        )
        sources = ", ".join(f"<{source}>" for source in row.source.split(", "))
        yield f"\n### {row.option}\n\n{defaults}\n\n{row.why} Source: {sources}\n"

"""The tables of docs/compiler.md, which are those that the trainer compiles with."""

import json
from collections.abc import Iterable

from tests.made_part import with_part
from workloads.spec.compiler import COMPILER_OPTIONS, MULTISLICE_ARGUMENTS, Row

BEGIN, END = "<!-- tables: made by tests/documents/compiler_reference.py -->\n", "<!-- end of tables -->\n"


def with_tables(document: str) -> str:
    """The document with the tables as the trainer has them."""
    parts = ["\n## Options of the compiler\n", *_tables(COMPILER_OPTIONS), "\n## Arguments of libtpu\n"]
    parts += ["\nOnly jobs on more than one slice get them.\n", *_tables(MULTISLICE_ARGUMENTS), "\n"]
    return with_part(document, BEGIN, "".join(parts), END)


def _tables(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        values = {generation: json.dumps(value) for generation, value in row.values.items()}
        quick = {generation: json.dumps(value) for generation, value in row.quick.items()}
        told = ", ".join(
            f"{generation} `{value}`{f' (quick: `{quick[generation]}`)' if generation in quick else ''}"
            for generation, value in values.items()
        )
        sources = ", ".join(f"<{source}>" for source in row.source.split(", "))
        yield f"\n### {row.option}\n\n{told}\n\n{row.why} Source: {sources}\n"

"""Renders the table of designs in docs/explanation/benchmarks.md from the compiled steps."""

from benchmarks.designs import TABLE, read_rows
from benchmarks.preflight_table import HEAD, line
from tests.made_part import with_part

BEGIN, END = "<!-- designs: made by tests/documents/benchmarks_reference.py -->\n", "<!-- end of designs -->\n"


def with_designs(document: str) -> str:
    """Return the document with a row for each compiled design."""
    text = (
        "All values except MFU are for one device: bytes that it sends within its slice in a step (AG: all-gather, AR:"
        " all-reduce, RS: reduce-scatter), memory at the peak, and the processor time of the compilation. MFU counts"
        " causal attention once, 6 FLOPs per weight and token, and no recomputation."
    )
    rows = [line(str(row.design), row) for row in read_rows(TABLE.read_text())]
    return with_part(document, BEGIN, "".join(f"{each}\n" for each in ("", text, "", HEAD, *rows, "")), END)

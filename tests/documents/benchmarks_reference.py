"""Renders the table of designs in docs/explanation/benchmarks.md from the compiled steps that plans use."""

from benchmarks.compiled_steps import TABLE, Row, read_rows
from tests.made_part import with_part
from workloads.preflight_result import quoted

BEGIN, END = "<!-- designs: made by tests/documents/benchmarks_reference.py -->\n", "<!-- end of designs -->\n"
_HEAD = """\
| design | s at 35 (25, 50) % | MFU at 35 (25, 50) % | DCN s, of which exposed | GB over ICI | GiB of GiB | CPU s |
|---|---|---|---|---|---|---|"""
_SHORT = {"all-gather": "AG", "all-reduce": "AR", "reduce-scatter": "RS", "all-to-all": "A2A"}


def with_designs(document: str) -> str:
    """Return the document with a row for each compiled design."""
    text = (
        "All values except MFU are for one device: bytes that it sends within its slice in a step (AG: all-gather, AR:"
        " all-reduce, RS: reduce-scatter), memory at the peak, and the processor time of the compilation. MFU counts"
        " causal attention once, 6 FLOPs per weight and token, and no recomputation. A step includes the exposed"
        " part of DCN, in which it waits for other slices."
    )
    rows = [f"| {row.design} | {' | '.join(_cells(row))} |" for row in read_rows(TABLE.read_text())]
    return with_part(document, BEGIN, "".join(f"{each}\n" for each in ("", text, "", _HEAD, *rows, "")), END)


def _cells(made: Row) -> tuple[str, ...]:
    needed = "more" if made.needed_gib is None else f"{made.needed_gib:.1f}"
    memory, compiler = f"{needed} of {made.usable_gib:.1f}", f"{made.compile_cpu_seconds:.0f}"
    if made.step is None:
        return ("does not fit", "", "", "", memory, compiler)
    step = quoted(made.step.steps)
    assert step
    rest = [each for each in made.step.steps if each != step]
    sent = [f"{_SHORT.get(kind, kind)} {sent / 1e9:.1f}" for kind, sent in made.step.ici_sent_bytes.items()]
    return (
        f"{step.seconds:.3f} ({', '.join(f'{each.seconds:.3f}' for each in rest)})",
        f"{step.mfu:.1%} ({', '.join(f'{each.mfu:.1%}' for each in rest)})",
        f"{made.step.dcn_seconds:.3f}, {made.step.dcn_exposed_seconds:.4f}",
        ", ".join(sent),
        memory,
        compiler,
    )

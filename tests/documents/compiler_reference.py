"""The page about compiler options, whose tables are those that the trainer compiles with."""

import json
from collections.abc import Iterable

from tests.documents.pages import MADE
from workloads.spec.compiler import COMPILER_OPTIONS, MULTISLICE_ARGUMENTS, Row

_HEAD = f"""# Compiler options

{MADE.format("tests/documents/compiler_reference.py")}

A training job's programs are compiled with the options below, by generation. The trainer, the preflight and the pod's
environment read the same table, `workloads/spec/compiler.py`. No TPU has run any of these options; tests show that
libtpu accepts each of them and that gathers change as the table says.

## Change them

```yaml
job:
  compile: quick
  compiler_options:
    xla_tpu_scoped_vmem_limit_kib: 49152
    xla_tpu_enable_sparse_core_collective_offload_all_gather: null
  libtpu_args:
    megascale_graph_hang_threshold: 60m
```

A value replaces a default or adds an option, and `null` removes a default. `multislice preflight` refuses a name or
value that libtpu does not accept, with libtpu's message. A change compiles the step again and replaces the job; a run
resumes across it. The manifest of a run records the options and arguments that its first start used, and each
checkpoint those of the start that saved it. On CPUs, as in the sandbox, the options have no effect.

`compile: quick` gives fusions less fast memory. `multislice preflight -s STACK --compare-compile` compiles both ways
and shows the processor time and the estimated step of each.
"""

_TAIL = """
## Not set

- `xla_tpu_enable_ici_ag_pipelining` starts a layer's gather during the layer before. On v5p with Llama-3.1-8B the
  copies and the memory that it needs cost more than the wait that it saves.
- Reduce-scatters on the SparseCore (`xla_tpu_enable_sparse_core_collective_offload_reduce_scatter`,
  `xla_tpu_enable_sparse_core_collective_offload_nd_reduce_scatter`, `xla_tpu_enable_sparse_core_reduce_scatter_v2`).
  On v5p libtpu sums gradients by an all-reduce over the slice, twice the bytes, and these options turn it into a
  reduce-scatter. Google's recipes for 7x use them. axlearn turned the first one off there, since losses were wrong
  with JAX 0.8.3, and all-reduces on the SparseCore on v6e too. Compare the losses of some hundred steps with and
  without them before you use them.
- Splitting the `fsdp` axis into the three dimensions of a v5p torus also gives true gathers and reduce-scatters. Each
  then uses the links of one dimension at a time, a third of what the all-reduce uses, so twice fewer bytes take longer.
"""


def reference() -> str:
    """The whole text."""
    return "".join(
        [
            _HEAD,
            "\n## Options of the compiler\n",
            *_tables(COMPILER_OPTIONS),
            "\n## Arguments of libtpu\n\nOnly jobs on more than one slice get them.\n",
            *_tables(MULTISLICE_ARGUMENTS),
            _TAIL,
        ]
    )


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

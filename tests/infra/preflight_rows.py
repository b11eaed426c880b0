"""Rows of a table of preflights that were never compiled: every number is made up."""

from datetime import date

from infra.plan import CompiledStep, Design, Row
from workloads.preflight_result import StepEstimate


def design(kind: str = "v6e 4x4", sequences: int = 3, slices: int = 2, preset: str = "llama-3.1-8b") -> Design:
    generation, topology = kind.split()
    return Design.parse(f"{preset}:{generation}:{topology}:{slices}:{sequences}:attention")


def fitting(made: Design, seconds: float = 3.0, exposed: float = 0.01, dcn: float = 0.1) -> Row:
    """A step of so many seconds at the quoted efficiency."""
    step = CompiledStep(
        steps=tuple(_estimate(share, factor, seconds) for share, factor in ((0.25, 1.1), (0.35, 1.0), (0.5, 0.9))),
        ici_sent_bytes={"all-gather": 1e9},
        dcn_sent_bytes={"ALL_REDUCE": 1e9},
        dcn_seconds=dcn,
        dcn_exposed_seconds=exposed,
    )
    return Row(
        design=made,
        compiled_on=date(2026, 1, 2),
        versions={"jax": "0", "libtpu": "0"},
        needed_gib=20,
        usable_gib=31.24,
        step=step,
        compile_cpu_seconds=1,
    )


def unfit(made: Design) -> Row:
    return fitting(made).model_copy(update={"step": None, "needed_gib": 40.0})


def _estimate(share: float, factor: float, seconds: float) -> StepEstimate:
    return StepEstimate(
        kernel_efficiency=share, seconds=factor * seconds, mfu=0.4 / factor, tokens_per_second_per_chip=1
    )

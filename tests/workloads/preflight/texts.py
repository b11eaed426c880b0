"""Optimised programs as text: one that libtpu wrote, and small ones around a few instructions."""

from pathlib import Path

from workloads.preflight.hlo import Module, parse

SCAN = (Path(__file__).parent / "scan.txt").read_text()
"""Five layers x @ all_gather(w) of 1024 x 1024 in bf16 on two slices of 16 chips, 512 tokens a chip, and one psum
of w between the slices. Kernels and most configuration are removed."""


def module(*instructions: str, computations: str = "") -> Module:
    """Return a program that runs `instructions`, the last of which is its result."""
    *body, last = instructions
    lines = "".join(f"  {line}\n" for line in (*body, f"ROOT {last}"))
    return parse(
        f"HloModule test, num_partitions=16\n\n{computations}\nENTRY %main (a: f32[]) -> f32[] {{\n{lines}}}\n"
    )


def loop(name: str, first: int, limit: int, step: int, direction: str, body: str = "") -> tuple[str, str, str]:
    """Return the computations of a loop that counts from `first`, and the two instructions that run it."""
    computations = f"""\
%{name}_body (carried: (s32[])) -> (s32[]) {{
  %carried = (s32[]) parameter(0)
  %counter = s32[] get-tuple-element(%carried), index=0
  %step = s32[] constant({step})
  %next = s32[] add(%counter, %step)
{body}  ROOT %out = (s32[]) tuple(%next)
}}

%{name}_condition (carried: (s32[])) -> pred[] {{
  %carried = (s32[]) parameter(0)
  %counter = s32[] get-tuple-element(%carried), index=0
  %limit = s32[] constant({limit})
  ROOT %compare = pred[] compare(%counter, %limit), direction={direction}
}}

"""
    begin = f"%{name}_first = s32[] constant({first})"
    carried = f"%{name}_carried = (s32[]) tuple(%{name}_first)"
    run = f"%{name} = (s32[]) while(%{name}_carried), condition=%{name}_condition, body=%{name}_body"
    return computations, f"{begin}\n  {carried}", run

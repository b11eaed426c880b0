from datetime import date

import pytest

from benchmarks.compiled_steps import TABLE, Design, Row, job, missing, read_rows, row
from workloads.preflight.compilation import Compilation, Excess
from workloads.preflight.report import Report
from workloads.preflight_result import versions


def design(sequences: int = 3) -> Design:
    return Design.parse(f"llama-3.1-8b:v6e:4x4:2:{sequences}:attention")


def unfit(made: Design, needed_gib: float = 40.0) -> Row:
    return Row(
        design=made,
        compiled_on=date(2026, 1, 2),
        versions={"jax": "0", "libtpu": "0"},
        needed_gib=needed_gib,
        usable_gib=31.24,
        step=None,
        compile_cpu_seconds=1,
    )


def test_every_row_of_the_table_is_a_job_that_can_be_had() -> None:
    shipped = read_rows(TABLE.read_text())
    assert shipped
    for each in shipped:
        spec = job(each.design)
        assert spec.training.global_batch == each.design.sequences_per_chip * spec.slices.chips
        assert each.step is None or each.needed_gib is not None
        assert each.step is None or sorted(each.step.steps, key=lambda step: -step.seconds) == [*each.step.steps]


def test_a_row_that_was_compiled_again_replaces_the_previous_one() -> None:
    lines = [unfit(design()), unfit(design(sequences=4)), unfit(design(), 41.0)]
    table = read_rows("".join(f"{each.model_dump_json()}\n" for each in lines))
    assert [each.needed_gib for each in table] == [41.0, 40.0]


@pytest.mark.parametrize(
    ("written", "length", "attention"),
    [
        ("llama-3.2-1b:v5p:4x4x8:2:6:full", 8192, "splash"),
        ("llama-3.2-1b:v5p:4x4x8:2:6:full:32768", 32768, "splash"),
        ("llama-3.2-1b:v5p:4x4x8:2:6:offload:fused", 8192, "fused"),
    ],
)
def test_a_design_is_written_as_it_is_read(written: str, length: int, attention: str) -> None:
    made = Design.parse(written)
    assert str(made) == written
    assert (made.sequence_length, made.attention) == (length, attention)


@pytest.mark.parametrize(
    "written", ["", "llama-3.2-1b:v5p:4x4x8:2:6", "llama-3.2-1b:v5p:4x4x8:2:0:full", "none:v5p:4x4x8:2:6:full"]
)
def test_what_names_no_design_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a design; write PRESET:|sequences_per_chip|is not a preset"):
        Design.parse(written)


def test_only_what_has_no_row_of_these_versions_is_compiled() -> None:
    done, old, new = (design(count) for count in (1, 2, 3))
    known = [unfit(done).model_copy(update={"versions": versions()}), unfit(old)]
    assert missing([done, old, new], known) == (old, new)


def test_a_report_of_what_does_not_fit_makes_a_row_without_a_step() -> None:
    compilation = Compilation(8.0, 7.0, "", None, Excess(40.5, 31.24, ""), (), ())
    made = row(design(), Report(job(design()), compilation, None, None))
    assert (made.step, made.needed_gib, made.usable_gib) == (None, 40.5, 31.24)

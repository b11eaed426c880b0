import pytest

from benchmarks.preflight_table import job
from infra.plan import TABLE, Design, read_rows
from tests.infra.preflight_rows import design, fitting, unfit


def test_every_row_that_ships_is_a_job_that_can_be_had() -> None:
    shipped = read_rows(TABLE.read_text())
    assert shipped
    for each in shipped:
        spec = job(each.design)
        assert spec.training.global_batch == each.design.sequences_per_chip * spec.slices.chips
        assert each.step is None or each.needed_gib is not None
        assert each.step is None or sorted(each.step.steps, key=lambda step: -step.seconds) == [*each.step.steps]


def test_a_row_that_was_compiled_again_stands_for_the_one_before() -> None:
    lines = [fitting(design(), 3.0), unfit(design(sequences=4)), fitting(design(), 2.5)]
    table = read_rows("".join(f"{each.model_dump_json()}\n" for each in lines))
    assert [each.step and each.step.quoted.seconds for each in table] == [2.5, None]


def test_a_design_is_written_as_it_is_read() -> None:
    written = "llama-3.2-1b:v5p:4x4x8:2:6:full"
    made = Design.parse(written)
    assert str(made) == written
    assert (made.sequence_length, made.attention) == (8192, "splash")


@pytest.mark.parametrize(
    "written", ["", "llama-3.2-1b:v5p:4x4x8:2:6", "llama-3.2-1b:v5p:4x4x8:2:0:full", "none:v5p:4x4x8:2:6:full"]
)
def test_what_names_no_design_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a design; write PRESET:|sequences_per_chip|is not a preset"):
        Design.parse(written)

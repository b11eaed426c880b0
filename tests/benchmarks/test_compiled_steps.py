from benchmarks.compiled_steps import missing, row
from tests.infra import preflight_rows
from workloads.preflight_result import versions


def test_only_what_has_no_row_of_these_versions_is_compiled() -> None:
    done, old, new = (preflight_rows.design(sequences=count) for count in (1, 2, 3))
    known = [preflight_rows.fitting(done).model_copy(update={"versions": versions()}), preflight_rows.fitting(old)]
    assert missing([done, old, new], known) == (old, new)


def test_a_report_of_what_does_not_fit_makes_a_row_without_a_step() -> None:
    compilation = {"memory": None, "excess": {"needed_gib": 40.5}, "cpu_seconds": 7.0}
    report = {"compilation": compilation, "totals": None, "estimate": None, "usable_gib": 31.24}
    made = row(preflight_rows.design(), report)
    assert (made.step, made.needed_gib, made.usable_gib) == (None, 40.5, 31.24)

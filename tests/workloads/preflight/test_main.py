import json
from pathlib import Path

import pytest

from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.preflight.texts import SCAN
from workloads.preflight.__main__ import main
from workloads.preflight.compilation import Compilation, Excess
from workloads.preflight.report import Report
from workloads.preflight_result import BigArray


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    spec, text = tmp_path / "spec.json", tmp_path / "program.txt"
    spec.write_text(v6e_job().model_dump_json())
    text.write_text(SCAN)
    return [str(spec), "--from-text", str(text)]


def test_the_table_is_legible_on_a_hundred_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    table = capsys.readouterr().out.splitlines()
    assert max(map(len, table)) <= 100
    assert "ESTIMATED step, not measured" in "".join(table)
    rows = [line.split() for line in table]
    assert ["ICI", "all-gather", "5", "10.486", "9.830"] in rows
    assert ["DCN", "ALL_REDUCE", "1", "0.655"] in rows


def test_the_json_holds_the_same_figures(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"]["dcn"]["ALL_REDUCE"]["sent_bytes"] == 655360
    assert found["totals"]["matmul_flops"] == 5 * 2 * 512 * 1024 * 1024
    assert len(found["estimate"]["steps"]) == 3


def test_a_text_that_is_no_program_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(arguments[-1]).write_text("nothing")
    assert main(arguments) == 1
    assert "error: expected an optimised HLO module, which begins with" in capsys.readouterr().err


def test_a_step_that_does_not_fit_is_reported_without_an_estimate() -> None:
    excess = Excess(76.64, 31.24, "Ran out of memory on HBM")
    complaint = "Involuntary full rematerialization of %a"
    scores = BigArray(what="forward, attend:3 dot_general", shape="f32[4,32,8192,8192]", gib=32.0)
    report = Report(v6e_job(), Compilation(5.3, 5.1, "", None, excess, (scores,), (complaint,)), None, None)
    table = report.as_table()
    assert "DOES NOT FIT: needs 76.64 GiB of 31.24 GiB per device" in table
    assert f"WARNING: {complaint}" in table
    assert ["32.00", "f32[4,32,8192,8192]", "forward,", "attend:3", "dot_general"] in [
        line.split() for line in table.splitlines()
    ]
    assert "ESTIMATED" not in table
    found = json.loads(report.as_json())
    assert found["estimate"] is None
    assert found["compilation"]["biggest_arrays"] == [scores.model_dump()]

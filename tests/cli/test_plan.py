import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from cli import plan as command
from cli.answer import Form, Halt
from cli.plan import ChipPrices, chart, plan
from infra.cost import Rate
from infra.plan import Goal, Order, Plan
from infra.plan import plan as planned
from infra.review.table import as_text
from tests.cli.shown import read_output
from tests.infra.preflight_rows import design, fitting, unfit

GOAL = Goal(preset="llama-3.1-8b", tokens=1e12, days=30)
NO_PRICE = Rate(source="nobody knows")
PRICES = ChipPrices(
    lambda generation: {"v6e": Rate(usd_per_chip_hour=2.0, source="a list", date="2026", place="us-east5")}.get(
        generation, NO_PRICE
    ),
    "on-demand in nowhere",
)


@pytest.fixture(autouse=True)
def made_up_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [fitting(design(), 3.0), unfit(design(sequences=4)), fitting(design("v5p 4x4x8"), 1.5)]
    table = tmp_path / "preflights.jsonl"
    table.write_text("".join(f"{each.model_dump_json()}\n" for each in rows))
    monkeypatch.setattr(command, "TABLE", table)


def shown(goal: Goal, order: Order, form: Form, svg: Path | None = None) -> tuple[int, str]:
    """Exit status and text of the command."""
    console = Console(file=io.StringIO(), highlight=False)
    status = plan(goal, PRICES, order, svg, form, console)
    return status, read_output(console)


def test_the_table_has_answers_within_100_columns() -> None:
    status, text = shown(GOAL, "dollars", Form.TEXT)
    lines = text.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= 100
    assert lines[0] == "llama-3.1-8b, 1T tokens in 30 days  by dollars, all times ESTIMATES"
    # v5p has no price, so it comes last.
    assert [line.split()[2] for line in lines if " x v" in line] == ["v6e", "v6e", "v5p", "v5p"]
    assert any("unknown" in line and "v5p 4x4x8" in line for line in lines)
    assert "- a chip-hour of v6e, on-demand in nowhere: $2.0 ($48.00 a day) in us-east5 (a list, 2026)" in lines
    assert "- a chip-hour of v5p, on-demand in nowhere: nobody knows" in lines


def test_what_slices_that_restart_one_by_one_cost_is_shown_for_the_same_answers() -> None:
    _, text = shown(GOAL, "dollars", Form.TEXT)
    words = " ".join(text.split())
    assert (
        "slice_failure: continue hides no transfers, so that a step takes longer: 0.090 s on 3 slices of v6e 4x4"
        in words
    )
    assert "(0.133 s of transfers, of which restart hides all but 0.043 s)" in words


def test_the_object_has_all_that_is_printed() -> None:
    status, text = shown(GOAL, "days", Form.JSON)
    assert status == 0
    assert Plan.model_validate(json.loads(text)).goal == GOAL


def test_when_nothing_is_in_time_the_fastest_are_shown_and_the_status_reports() -> None:
    status, text = shown(GOAL.model_copy(update={"days": 0.5}), "dollars", Form.TEXT)
    assert status == 2
    assert "no slices in the table meet the deadline" in text
    assert "21 x v6e 4x4" in text


def test_all_that_is_wrong_with_a_goal_is_reported_at_once() -> None:
    with pytest.raises(Halt) as caught:
        command.goal("llama", -1, 0)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["--preset", "--tokens:", "--days:"]


def test_a_chart_of_what_comes_too_late_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    assert shown(GOAL.model_copy(update={"days": 0.5}), "dollars", Form.JSON, file)[0] == 2
    assert len(ElementTree.parse(file).getroot().findall(".//{*}polyline")) == 1


def test_the_binding_limit_is_written_out_next_to_its_option() -> None:
    three, four = (design("v5p 4x4x4", many).model_copy(update={"remat": "dots"}) for many in (3, 4))
    found = planned([fitting(three, 7.4), unfit(four)], GOAL.model_copy(update={"tokens": 15e12}), lambda _: 4.2)
    lines = as_text([command.table(found, PRICES, "dollars")]).splitlines()
    assert max(map(len, lines)) <= 100
    assert "binds" in lines[1]
    (option,) = (line for line in lines if " x v5p" in line)
    assert "3, dots" in option
    assert option.endswith(("HBM,", "HBM, batch"))


@pytest.mark.parametrize(
    ("tokens", "days"),
    [(-1.0, 30.0), (float("nan"), 30.0), (float("inf"), 30.0), (1e300, 30.0), (1e12, 0.0), (1e12, float("inf"))],
)
def test_a_goal_that_cannot_be_is_refused_without_words_of_a_library(tokens: float, days: float) -> None:
    with pytest.raises(Halt, match=r"^--(tokens|days): expected ") as caught:
        command.goal("llama-3.1-8b", tokens, days)
    assert "Input should" not in str(caught.value)


def test_the_nearest_preset_is_offered_first() -> None:
    with pytest.raises(Halt, match="^did you mean llama-3.1-8b"):
        command.goal("llama-3-8b", 1e12, 30)


def test_a_chart_that_cannot_be_written_is_reported_with_its_option() -> None:
    with pytest.raises(Halt, match="--svg: cannot write /proc/none/x.svg"):
        shown(GOAL, "dollars", Form.TEXT, Path("/proc/none/x.svg"))


@pytest.mark.parametrize("zone", ["mars", "us-east5", "us-eats5-a", "europe-north9-b", ""])
def test_a_zone_that_no_price_list_has_is_refused(zone: str) -> None:
    with pytest.raises(Halt, match="--zone must be a zone") as caught:
        command.chip_prices(zone, "on-demand")
    assert "us-east5" in str(caught.value)


def test_prices_are_those_of_the_zone_or_the_lowest_of_all() -> None:
    assert command.chip_prices("us-south1-a", "on-demand").usd("v5p") == 4.779
    assert command.chip_prices(None, "on-demand").usd("v5p") == 4.2
    assert command.chip_prices(None, "on-demand").usd("7x") is None


def test_a_preset_that_was_never_compiled_is_reported_with_the_command_to_run() -> None:
    with pytest.raises(Halt, match=r"run python -m benchmarks\.compiled_steps"):
        shown(GOAL.model_copy(update={"preset": "tiny"}), "days", Form.TEXT)


def test_the_chart_is_a_file_of_its_own_with_a_line_for_each_kind_that_has_a_price(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    shown(GOAL, "dollars", Form.JSON, file)
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    lines = root.findall(".//{*}polyline")
    assert [line.attrib["class"] for line in lines] == ["line c1"]
    assert "var(" not in file.read_text(), "programs that make pictures of SVG know no variables of CSS"
    assert ".line.c1 { stroke: #2a78d6; }" in file.read_text()


def test_a_chart_without_any_price_is_refused() -> None:
    found = planned([fitting(design())], GOAL, {}.get)
    with pytest.raises(ValueError, match="needs the price of a chip"):
        chart(found, "on demand in nowhere")

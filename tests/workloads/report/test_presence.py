from pathlib import Path
from xml.etree import ElementTree

from tests.workloads.report.runs import (
    began_slice,
    changed,
    crashed_and_resumed,
    history,
    slice_lost_and_back,
    write_run,
)
from workloads.report.page import page
from workloads.report.presence import SLICES_SHOWN, presence_chart


def bands(drawing: str) -> list[tuple[float, float, str]]:
    """Return begin, width and style of each bar with a tooltip."""
    found = [each for each in ElementTree.fromstring(drawing).iter("rect") if each.find("title") is not None]
    return [(float(each.attrib["x"]), float(each.attrib["width"]), each.attrib["class"]) for each in found]


def test_each_slice_has_a_band_of_time_with_its_states(tmp_path: Path) -> None:
    drawing = presence_chart(history(slice_lost_and_back(tmp_path)))
    assert drawing
    styles = [style for _, _, style in bands(drawing)]
    assert styles == ["fill-1", "fill-bad", "fill-4", "fill-1", "fill-1", "fill-1"]
    widths = [width for _, width, _ in bands(drawing)]
    # The bands of slice 0 add up to those of the slices that were always there.
    assert abs(sum(widths[:4]) - widths[4]) < 1
    assert widths[1] < widths[2] < widths[0]


def test_a_run_whose_slices_stop_together_has_no_band(tmp_path: Path) -> None:
    found = history(crashed_and_resumed(tmp_path))
    assert presence_chart(found) is None
    assert "Slices" not in page(found)


def test_the_page_says_which_slice_was_lost_and_which_steps_had_fewer(tmp_path: Path) -> None:
    text = page(history(slice_lost_and_back(tmp_path)))
    assert "slice 0 lost for 3.0 s" in text
    assert "slice 0 after step 4" in text
    # Steps 5 and 6 took 2 s and 1 s.
    assert "tokens/s with fewer slices: from 50 at step 5 to 100 at step 6" in text


def test_of_many_slices_those_that_were_away_longest_are_shown(tmp_path: Path) -> None:
    count = SLICES_SHOWN + 8
    names = " ".join(map(str, range(count)))
    most = " ".join(str(one) for one in range(count) if one != count - 1)
    facts = [changed(10, 0, names, "begun"), changed(20, 4, most, f"lost {count - 1}"), changed(30, 9, names, "joined")]
    ledger = [began_slice(9, 0, at=0), *({**each, "asked": count} for each in facts), changed(40, 9, names, "")]
    drawing = presence_chart(history(write_run(tmp_path, {"0-0": ledger}, {})))
    assert drawing
    assert f"slice {count - 1}<" in drawing
    assert drawing.count("</title><") >= SLICES_SHOWN
    assert f"slice {count - 2}<" not in drawing

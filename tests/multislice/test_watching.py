import pytest

from multislice.following import Line
from multislice.watching import Screen, Shown

BEGINS, ENDS = "call x: the function begins", "call x: the function has ended"


def shown(which: Shown, capsys: pytest.CaptureFixture[str], *lines: tuple[str, str]) -> tuple[list[str], Screen]:
    screen = Screen(which)
    for host, text in lines:
        screen.line(Line(host, text))
    return capsys.readouterr().out.splitlines(), screen


def test_the_leaders_lines_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    first = "slice-0-0"
    lines = [(first, text) for text in ("WARNING", BEGINS, "one", "[Gloo] Rank 0", "two", ENDS, "stopped")]
    found, screen = shown("leader", capsys, *lines)
    assert found == ["one", "two"]
    assert screen.ended.is_set()


def test_each_host_has_its_own_window_and_the_leaders_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = "slice-0-0", "slice-1-0"
    lines = [(one, BEGINS), (two, "early"), (two, BEGINS), (one, "a"), (two, "b"), (two, ENDS), (two, "late")]
    found, screen = shown("all", capsys, *lines)
    assert found == ["[slice-0-0] a", "[slice-1-0] b"]
    assert not screen.ended.is_set()

"""Golden text of every state: `UPDATE_GOLDEN=1` accepts what is shown now, for review in the diff."""

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from cli.observed.files import Failure
from cli.observed.pod import newest
from cli.view import closing
from cli.view.render import duration, exit_words, pods_table, screen, sparkline
from cli.view.snapshot import Snapshot
from sandbox.site import Site
from tests.cli import api_objects
from tests.cli.api_objects import START
from tests.cli.view import recordings

GOLDEN = Path(__file__).parent / "golden"
NOW = recordings.START + 84
PLACE = closing.Place(
    Site(Path("/home/me/stack/.sandbox"), 64), Path("/opt/programs/kubectl"), "research", "gs://checkpoints/tiny"
)


def text(shown: RenderableType, columns: int, soft_wrap: bool = False) -> str:
    console = Console(width=columns, file=io.StringIO(), record=True, color_system=None)
    console.print(shown, soft_wrap=soft_wrap)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n"


def check(name: str, shown: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()


@pytest.mark.parametrize("columns", [100, 48])
@pytest.mark.parametrize(
    "state",
    [
        recordings.building,
        recordings.starting,
        recordings.planning,
        recordings.applying,
        recordings.queued,
        recordings.placing,
        recordings.compiling,
        recordings.training,
        recordings.restarted,
        recordings.completed,
        recordings.failed,
        recordings.destroying,
    ],
)
def test_each_state_has_its_golden_screen(state: Callable[[], Snapshot], columns: int) -> None:
    shown = text(screen(state(), NOW, columns), columns)

    assert max(len(line) for line in shown.splitlines()) <= columns
    check(f"{state.__name__}-{columns}", shown)


def test_a_head_is_shown_as_such_and_stands_for_no_host() -> None:
    pods = newest([api_objects.head(), *(api_objects.pod(*host) for host in api_objects.HOSTS[:3])], NOW)
    _, *rows, more = text(pods_table(pods, 5, exit_words), 80).splitlines()
    assert [row.split()[:2] for row in rows] == [["head", "-"], ["0", "0"], ["0", "1"], ["1", "0"]]
    assert more == "1 more to be created"


def test_a_wide_terminal_is_not_filled() -> None:
    assert text(screen(recordings.training(), NOW, 300), 300) == text(screen(recordings.training(), NOW, 100), 100)


def test_the_completed_job_tells_losses_checkpoint_and_what_to_try() -> None:
    check("closing-completed", text(closing.completed(recordings.completed(), PLACE), 80, soft_wrap=True))


def test_the_failed_job_tells_the_reason_and_the_last_thirty_lines_of_the_host(tmp_path: Path) -> None:
    snapshot = recordings.failed()
    place = closing.Place(Site(tmp_path, 64), Path("/opt/programs/kubectl"), "research", "gs://checkpoints/tiny")
    folder = place.log_folder(snapshot.failed[-1])
    folder.mkdir(parents=True)
    (folder / "trainer.log").write_text("".join(f"line {number}\n" for number in range(100)))

    shown = text(closing.failed(snapshot, place), 80, soft_wrap=True)

    check("closing-failed", shown.replace(str(tmp_path), "/home/me/stack/.sandbox"))


def test_the_log_of_another_host_is_not_shown_for_that_of_the_first_cause(tmp_path: Path) -> None:
    record = Failure(START + 60, "tiny-slice-1-1.tiny", 22, "ValueError: no such preset", 0, 0)
    snapshot = replace(recordings.failed(), records=(record,))
    place = closing.Place(Site(tmp_path, 64), Path("/opt/programs/kubectl"), "research", "gs://checkpoints/tiny")
    shown = text(closing.failed(snapshot, place), 200, soft_wrap=True)
    assert "host slice-1-1 exited 22" in shown
    assert "ValueError: no such preset" in shown
    assert "its log ends" not in shown


def test_a_stack_without_jobs_says_how_to_submit_one_to_each_queue() -> None:
    shown = closing.without_jobs(PLACE.site, PLACE.kubectl, {"product": "products", "research": "research"})
    check("closing-without-jobs", text(shown, 80, soft_wrap=True))


def test_commands_to_copy_are_never_wrapped() -> None:
    shown = text(closing.completed(recordings.completed(), PLACE), 30, soft_wrap=True)

    assert f"  {PLACE.kubectl_command()}\n" in shown
    assert f"  {PLACE.kill_command()}\n" in shown


def test_the_times_table_has_one_row_per_phase() -> None:
    check("closing-times", text(closing.times(recordings.completed()), 80))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (42.4, "42 s"), (187, "3 min 07 s"), (7500, "2 h 05 min")]
)
def test_durations_read_well(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("code", "shown"),
    [(22, "22 (diverged)"), (137, "137 (SIGKILL)"), (143, "143 (preempted)"), (3, "3"), (None, "unknown")],
)
def test_exit_codes_are_told_in_words(code: int | None, shown: str) -> None:
    assert exit_words(code) == shown


def test_the_sparkline_keeps_the_newest_value_and_the_width() -> None:
    assert sparkline([float(value) for value in range(100)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([2.0, 2.0], 8) == "▁▁"
    assert sparkline([], 8) == ""

"""Golden text of every state: `UPDATE_GOLDEN=1` accepts what is shown now, for review in the diff."""

from collections.abc import Callable

import pytest

from cli.progress import (
    UP_PHASES,
    Phase,
    Progress,
    about,
    announcement,
    engine,
    engine_done,
    lines,
    screen,
    times,
)
from tests.cli import recordings
from tests.cli.api_objects import START
from tests.cli.shown import check, text

NOW = START + 84


@pytest.mark.parametrize("columns", [100, 48])
@pytest.mark.parametrize(
    "state",
    [
        recordings.building,
        recordings.starting,
        recordings.planning,
        recordings.applying,
        recordings.applied,
        recordings.destroying,
    ],
)
def test_each_state_has_its_golden_screen(state: Callable[[], Progress], columns: int) -> None:
    shown = text(screen(state(), NOW, columns), columns)

    assert max(len(line) for line in shown.splitlines()) <= columns
    check(f"{state.__name__}-{columns}", shown)


def test_a_wide_terminal_is_not_filled() -> None:
    assert text(screen(recordings.applying(), NOW, 300), 300) == text(screen(recordings.applying(), NOW, 100), 100)


def test_the_times_table_has_one_row_per_phase() -> None:
    check("times", text(times(recordings.applied()), 80))


def test_the_announcement_has_the_likely_time_of_each_phase_and_of_all() -> None:
    check("announcement", text(announcement(recordings.building()), 80))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(3, "about 10 s"), (44, "about 40 s"), (114, "about 110 s"), (130, "about 2 min")]
)
def test_likely_times_are_rough(seconds: float, shown: str) -> None:
    assert about(seconds) == shown


def test_each_change_of_a_phase_is_one_line() -> None:
    assert lines(recordings.building(), recordings.starting()) == [
        "programs: 10 ready, done in 0.1 s",
        "control plane: API server, begins",
    ]
    assert lines(recordings.starting(), recordings.starting()) == []


def test_the_engine_gets_a_line_for_every_five_resources() -> None:
    progress = recordings.applying()
    begun = engine(progress, Phase.INFRASTRUCTURE, recordings.engine_event("resourcePreEvent", "job"))
    fifth = engine(begun, Phase.INFRASTRUCTURE, recordings.engine_event("resOutputsEvent", "kueue"))

    assert lines(progress, begun) == []
    assert lines(begun, fifth) == ["infrastructure: 5 of 6: JobSet job"]
    assert lines(fifth, recordings.applied()) == ["infrastructure: 6 resources, 6 changed, done in 37 s"]


def test_pulumi_s_errors_are_kept_without_colour_marks() -> None:
    message = "<{%fg 1%}>error: <{%reset%}>quota exceeded\n"

    progress = engine(recordings.applying(), Phase.INFRASTRUCTURE, recordings.error_event(message))

    assert progress.resources.errors == ("error: quota exceeded",)


def test_the_plan_gives_the_total_of_the_update() -> None:
    planned = engine_done(recordings.planning(), Phase.PLAN)

    assert planned.resources.total == len(recordings.TYPE_OF)
    assert planned.spans[Phase.PLAN].detail == "6 resources, 6 to change"


def test_what_a_chart_holds_is_not_counted() -> None:
    event = recordings.engine_event("resourcePreEvent", "kueue")
    assert event.resource_pre_event is not None
    event.resource_pre_event.metadata.urn = "urn:pulumi:local::p::kubernetes:helm.sh/v4:Chart$kubernetes:v1:Service::s"

    progress = engine(recordings.applying(), Phase.INFRASTRUCTURE, event)

    assert progress.resources == recordings.applying().resources


def test_the_stack_and_its_providers_are_not_counted_as_resources() -> None:
    begun = Progress("", UP_PHASES).begin(Phase.PLAN, START)
    event = recordings.engine_event("resourcePreEvent", "network")
    assert event.resource_pre_event is not None
    for kind in ("pulumi:pulumi:Stack", "pulumi:providers:gcp"):
        event.resource_pre_event.metadata.type = kind
        assert engine(begun, Phase.PLAN, event).resources.active == ()

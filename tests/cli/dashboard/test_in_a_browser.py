"""The page in a real browser. `UPDATE_GOLDEN=1` writes the picture of the documents anew."""

import math
import os
import re
from collections.abc import Generator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from cli.dashboard.server import Dashboard
from cli.observed.training import Training
from sandbox.daemon import CHECKOUT
from tests.chromium import browser
from tests.cli.dashboard.conftest import Stack

pytestmark = pytest.mark.complete

PICTURE = CHECKOUT / "docs" / "dashboard.png"
SECONDS = 60
expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="module")
def chromium() -> Generator[Browser]:
    with browser() as started:
        yield started


class Told:
    """What a browser complains about and asks for while it has the page."""

    def __init__(self, page: Page) -> None:
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        # Browsers look for an icon by themselves.
        if message.type in ("error", "warning") and "favicon" not in str(message.location):
            self.faults.append(message.text)


@pytest.fixture
def page(chromium: Browser, server: Dashboard) -> Generator[Page]:
    context = chromium.new_context(color_scheme="light", viewport={"width": 1100, "height": 1200}, timezone_id="UTC")
    made = context.new_page()
    made.set_default_timeout(SECONDS * 1000)
    made.goto(server.url, wait_until="commit")
    expect(made.locator("#connection")).to_have_text("live")
    yield made
    context.close()


def test_a_stack_is_on_one_page_and_the_browser_has_nothing_to_complain_about(
    chromium: Browser, server: Dashboard
) -> None:
    made = chromium.new_page()
    made.set_default_timeout(SECONDS * 1000)
    told = Told(made)
    made.goto(server.url, wait_until="commit")
    expect(made.get_by_role("heading", name="dev", exact=True)).to_be_visible()
    expect(made.locator("#jobs tbody tr")).to_have_text(re.compile(r"tiny.*running.*5 of 5.*\$54\.00"))
    expect(made.locator("#figures")).to_contain_text("4 of 4 on 2 slices")
    expect(made.locator("#hosts tbody tr")).to_have_count(4)
    expect(made.get_by_role("img", name=re.compile("loss from 3.0000 at step 1 to"))).to_be_visible()
    expect(made.locator("#goodput")).to_contain_text("productive steps")
    expect(made.locator("#queues tbody tr")).to_contain_text("research")
    assert told.faults == []
    assert {url.removeprefix(server.url) for url in told.asked if not url.endswith(f":{server.port}/favicon.ico")} <= {
        "",
        "page.css",
        "page.js",
        "events",
    }
    made.close()


def test_the_page_follows_the_stack_by_itself(page: Page, stack: Stack) -> None:
    (job,) = stack.snapshot.jobs
    expect(page.locator("#jobs")).to_contain_text("running")
    stack.snapshot = replace(stack.snapshot, jobs=(replace(job, terminal="Completed"),))
    expect(page.locator("#jobs")).to_contain_text("completed")


def test_a_slice_without_a_host_is_shown(page: Page, stack: Stack) -> None:
    stack.snapshot = replace(stack.snapshot, hostless={"trillium-1": "2x4"})
    expect(page.locator("#slices tbody tr").last).to_have_text(re.compile(r"trillium-1.*2x4.*none.*no host is there"))


def test_what_the_cluster_says_is_text_and_never_markup(page: Page, stack: Stack) -> None:
    (job,) = stack.snapshot.jobs
    evil = "<img src=x onerror=alert(1)>"
    stack.snapshot = replace(stack.snapshot, jobs=(replace(job, events=(replace(job.events[0], message=evil),)),))
    expect(page.locator("#events")).to_contain_text(evil)
    assert page.locator("#events img").count() == 0


def test_a_cluster_that_is_away_is_told_and_what_was_seen_stays(page: Page, stack: Stack) -> None:
    stack.snapshot = replace(stack.snapshot, answered=False, jobs=(), notes=("cannot read nodes: 503",))
    expect(page.locator("#connection")).to_have_text("the cluster does not answer")
    expect(page.locator("#notes")).to_contain_text("cannot read nodes: 503")
    expect(page.locator("#jobs")).to_contain_text("tiny")


def test_a_dashboard_that_has_ended_is_told(page: Page, server: Dashboard) -> None:
    server.feed.close()
    expect(page.locator("#connection")).to_contain_text("the dashboard does not answer")


def test_another_job_is_chosen_with_the_keyboard(page: Page, stack: Stack) -> None:
    (job,) = stack.snapshot.jobs
    other = replace(job, place=replace(job.place, name="other"), restarts=7)
    stack.snapshot = replace(stack.snapshot, jobs=(job, other))
    link = page.get_by_role("link", name="other")
    expect(link).to_be_visible()
    expect(page.locator("#job-heading")).to_have_text("tiny")
    link.focus()
    # The table is written anew below the focus.
    stack.snapshot = replace(stack.snapshot, jobs=(replace(job, restarts=8), other))
    expect(page.locator("#jobs tbody tr").first).to_contain_text("8")
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#job-heading")).to_have_text("other")
    expect(link).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_by_day_and_by_night(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    ground = _luminance(_colour(page, "body", "background-color"))
    assert (ground < 0.2) == (scheme == "dark")
    raised = _luminance(_colour(page, "#job", "background-color"))
    for selector in ("#price", "#job h3", "#job dt", "#job dd", "#jobs th", "#jobs td", "#jobs a", ".good", ".notable"):
        text = _luminance(_colour(page, selector, "color"))
        assert min(_contrast(text, ground), _contrast(text, raised)) >= 4.5, selector


def test_every_table_and_part_has_a_name_for_those_who_cannot_see_it(page: Page) -> None:
    headers = page.locator("th")
    assert headers.count() == page.locator("th[scope=col]").count() > 20
    for name in ("Jobs", "Slices", "Queues"):
        expect(page.get_by_role("region", name=name)).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_narrow_screen_shows_it_without_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_the_documents_show_the_page(page: Page, stack: Stack) -> None:
    (job,) = stack.snapshot.jobs
    losses = tuple((step, 2.5 + 3 / (1 + step / 20) + 0.05 * math.sin(step)) for step in range(1, 121))
    training = Training("resumed at step 75", "one", 120, 200, losses[-1][1], 41_234, 49.6, 2.61, 100, losses)
    restarted = tuple(replace(start, first_step=1 + 75 * start.number, last_step=120) for start in job.files.starts)
    files = replace(job.files, training=training, starts=restarted)
    stack.snapshot = replace(stack.snapshot, jobs=(replace(job, restarts=1, files=files),))
    expect(page.locator("#figures")).to_contain_text("120 of 200")
    if os.environ.get("UPDATE_GOLDEN"):
        page.screenshot(path=PICTURE, full_page=True)
    # A PNG begins with its signature and its width (https://www.w3.org/TR/png-3/#11IHDR).
    assert PICTURE.read_bytes()[:20] == page.screenshot(full_page=True)[:20]


def _colour(page: Page, selector: str, name: str) -> tuple[float, ...]:
    told = page.locator(selector).first.evaluate(f"found => getComputedStyle(found)['{name}']")
    return tuple(float(part) for part in re.findall(r"[\d.]+", told)[:3])


def _luminance(colour: tuple[float, ...]) -> float:
    """As WCAG 2 has it (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)

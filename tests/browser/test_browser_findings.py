"""Findings against what anybody may type, store or do to a file. Run: pytest tests/browser -m browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from driver import open_page, query, settle
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
SLOW = 30_000
MARKUP = "**bold** $\\frac12$ :red[x] <img src=x onerror=alert(1)> [l](javascript:alert(1)) \u202e"
INJECTED = ".katex, img[src=x], a[href^=javascript], strong:text-is('bold')"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 1800})
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    yield page
    page.close()


def expect_calm(page: Page) -> None:
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator(INJECTED)).to_have_count(0)


def test_markup_in_parameters_and_in_a_recording_is_text(page: Page, app: tuple[str, Path]) -> None:
    from sample import broken_step

    from engine.trace.header import TraceHeader
    from engine.trace.writer import TraceWriter

    address, folder = app
    with TraceWriter(folder / "markup.ddtree.arrow", TraceHeader(model=MARKUP)) as out:
        for number in range(3):
            step = broken_step(number, bs=2)
            named = [replace(step.requests[0], rid=MARKUP), step.requests[1]]
            out.write(replace(step, requests=tuple(named)))
    for name in ("steps", "show", "checks", "requests", "request", "step"):
        open_page(page, address, "findings", urlencode({"trace": "markup", name: MARKUP}))
        expect_calm(page)
    page.locator(".st-key-filter-requests input").click()
    expect_calm(page)


def test_two_tabs_and_the_way_back(browser: Browser, app: tuple[str, Path]) -> None:
    context = browser.new_context()
    one, other = context.new_page(), context.new_page()
    open_page(one, app[0], "findings", "trace=mixed&steps=2")
    open_page(other, app[0], "findings", "trace=mixed&checks=I1&step=4")
    one.get_by_role("textbox", name="steps").fill("3")
    one.keyboard.press("Enter")
    one.wait_for_url("**steps=3**", timeout=SLOW)
    settle(one)
    other.reload()
    settle(other)
    assert query(other) == {"trace": "mixed", "checks": "I1", "step": "4"}
    one.go_back()
    settle(one)
    assert query(one) == {"trace": "mixed", "steps": "2"}
    expect(one.get_by_role("textbox", name="steps")).to_have_value("2", timeout=SLOW)
    context.close()


@pytest.mark.parametrize("change", ["cut", "gone", "damaged"])
def test_a_file_that_changes_while_it_is_open_gives_a_sentence(
    change: str, page: Page, app: tuple[str, Path]
) -> None:
    path = app[1] / f"{change}.ddtree.arrow"
    data = (app[1] / "mixed.ddtree.arrow").read_bytes()
    path.write_bytes(data)
    open_page(page, app[0], "findings", f"trace={change}&step=0")
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:9000] if change == "cut" else b"\0" * len(data))
    page.get_by_role("button", name="Go to first").first.click()
    said = {"cut": "no steps recorded", "gone": "no recording", "damaged": "cannot be read"}
    expect(page.locator("[data-testid=stAlert]").first).to_contain_text(said[change], timeout=SLOW)
    settle(page)
    expect_calm(page)

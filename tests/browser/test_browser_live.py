"""The Live page in a real browser: it follows, and reads nothing while it is hidden or paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import SLOW, open_page, query, settle
from playwright.sync_api import Browser, Page, expect

from tests.factories import ints
from tests.live.recordings import Ranks

pytestmark = pytest.mark.browser
WIDTH = ("inputs.qo_indptr", ints(0, 4, 8, 12))


def hide(page: Page, hidden: bool, *, told: bool = True) -> None:
    """``told``: the page hears of it at once."""
    page.evaluate(
        """([hidden, told]) => {
            Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
            if (told) document.dispatchEvent(new Event('visibilitychange'));
        }""",
        [hidden, told],
    )


def rests(page: Page) -> str:
    """When the directory was looked at last, once that stands still for longer than three looks take."""
    caption = page.get_by_text("looked at")
    before = ""
    for _ in range(8):
        if (now := caption.inner_text(timeout=SLOW)) == before:
            return now
        before = now
        page.wait_for_timeout(3500)
    raise AssertionError(f"it looks on: {before}")


def test_it_follows_unless_it_is_hidden_or_paused(
    browser: Browser, app: tuple[str, Path], tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    ranks = Ranks(tmp_path, 2)
    ranks.write(0)
    open_page(page, app[0], "live", f"live={tmp_path}")
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("2 steps of 2 ranks, nothing wrong")).to_be_visible(timeout=SLOW)
    ranks.write(1)
    expect(page.get_by_text("4 steps of 2 ranks")).to_be_visible(timeout=SLOW)

    for step, told in ((2, True), (3, False)):  # an event that was lost is made up for
        hide(page, True, told=told)
        seen = rests(page)
        ranks.write(step)
        assert rests(page) == seen
        expect(page.get_by_text(f"{2 * step} steps of 2 ranks")).to_be_visible()
        hide(page, False, told=told)
        expect(page.get_by_text(f"{2 * step + 2} steps of 2 ranks")).to_be_visible(timeout=SLOW)

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible(timeout=SLOW)
    seen = rests(page)
    ranks.write(4, rank1=WIDTH)
    assert rests(page) == seen
    expect(page.get_by_text("8 steps of 2 ranks")).to_be_visible()
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("newest faulty step")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("link", name="Step inspector").last.click()
    page.wait_for_url("**/?*step=4*", timeout=SLOW)
    settle(page)
    assert query(page)["trace"] == str(tmp_path / "rank1.ddtree.arrow")
    assert problems == []
    page.close()


def test_it_asks_once_a_look_however_long_it_follows(
    browser: Browser, app: tuple[str, Path], tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    ranks = Ranks(tmp_path, 1)
    ranks.write(0)
    open_page(page, app[0], "live", f"live={tmp_path}")
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("▶ following")).to_be_visible(timeout=SLOW)
    for hidden in (True, False) * 3:
        hide(page, hidden)
        page.wait_for_timeout(1500)
    before = len(sent)
    page.wait_for_timeout(8000)
    assert 1 <= len(sent) - before <= 9
    page.mouse.click(5, 995)
    before = len(sent)
    for _ in range(12):  # a reader who does something is not interrupted
        page.mouse.click(5, 995)
        page.wait_for_timeout(300)
    assert len(sent) - before <= 1
    page.close()

"""A run in a real browser: started by hand, its map clicked. Run: pytest tests/browser -m "browser and model"."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import click_point, open_page, query, settle, spec
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.browser, pytest.mark.model]
MINUTES = 240_000  # milliseconds: SmolLM2 on a slow machine


def test_a_click_in_the_map_of_ranks_selects_the_step(
    browser: Browser, app: tuple[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 2200})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    open_page(page, app[0], "run")
    page.get_by_role("spinbutton", name="new tokens").fill("10")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("button", name="Open in the inspector")).to_be_visible(timeout=MINUTES)
    settle(page)

    places = next(t for t in spec(page, "rank-map")["data"] if t["name"] == "places")
    steps = sorted(set(places["customdata"]))
    assert len(steps) > 1
    assert spec(page, "rank-map")["shapes"][0]["x0"] == steps[-1] - 0.5
    click_point(page, "rank-map", "places", steps[0])
    assert query(page)["run_step"] == str(steps[0])
    assert spec(page, "rank-map")["shapes"][0]["x0"] == steps[0] - 0.5
    click_point(page, "run-strip", "accepted", steps[1], below=4)
    assert query(page)["run_step"] == str(steps[1])

    page.get_by_role("button", name="Open in the inspector").click()
    settle(page)
    assert query(page)["step"] == str(steps[1])
    assert problems == []
    page.close()

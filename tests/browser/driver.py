"""Steps that a reader of the app takes, and what the browser then shows."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Locator, Page, expect

SLOW = 30_000  # milliseconds


def open_page(page: Page, address: str, name: str = "", query: str = "") -> None:
    page.goto(f"{address}/{name}?{query}")
    expect(page.locator(".st-key-verdict")).to_be_visible(timeout=SLOW)
    settle(page)


def settle(page: Page) -> None:
    """The script has run and the charts are drawn."""
    page.wait_for_selector("[data-testid=stApp]", timeout=SLOW)
    page.wait_for_function(
        """() => {
            const idle = document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
                && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]');
            const now = performance.now();
            if (!idle || window.idleSince === undefined) window.idleSince = now;
            if (idle && now - window.idleSince > 350) { window.idleSince = undefined; return true; }
            return false;
        }""",
        timeout=SLOW,
    )


def query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlparse(page.url).query).items()}


def chart(page: Page, key: str) -> Locator:
    return page.locator(f".st-key-{key} .js-plotly-plot")


def spec(page: Page, key: str) -> dict:
    """Traces and layout as Plotly holds them."""
    expect(chart(page, key)).to_be_visible(timeout=SLOW)
    return chart(page, key).evaluate(
        "node => ({data: node.data.map(t => ({name: t.name, x: Array.from(t.x || []), y: Array.from(t.y || []),"
        " customdata: Array.from(t.customdata || [])})), shapes: node.layout.shapes || []})"
    )


def click_point(page: Page, key: str, trace: str, number: int, *, below: int = 0) -> None:
    """Click the marker of a trace whose ``customdata`` is ``number``; of a bar, pixels ``below`` its end."""
    expect(chart(page, key)).to_be_visible(timeout=SLOW)
    place = chart(page, key).evaluate(
        """(node, [name, number]) => {
            const trace = node.data.find(t => t.name === name);
            const k = Array.from(trace.customdata).indexOf(number);
            const {xaxis, yaxis, _size} = node._fullLayout;
            const box = node.getBoundingClientRect();
            return [box.x + _size.l + xaxis.d2p(trace.x[k]), box.y + _size.t + yaxis.d2p(trace.y[k])];
        }""",
        [trace, number],
    )
    place = [place[0], place[1] + below]
    page.mouse.move(place[0] - 2, place[1])
    page.mouse.move(*place)
    page.wait_for_timeout(150)
    page.mouse.click(*place)
    settle(page)


def press(page: Page, keys: str) -> None:
    page.locator("body").press(keys)
    settle(page)


def expect_step(page: Page, step: str) -> None:
    """Both the header and the URL name the step."""
    expect(page.get_by_label(re.compile("^step of"))).to_have_value(step, timeout=SLOW)
    page.wait_for_url(re.compile(f"[?&]step={step}(&|$)"), timeout=SLOW)
    settle(page)

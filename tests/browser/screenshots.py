"""Photographs every page in both themes.

``python tests/browser/screenshots.py FOLDER TRACES [QUERY]``: PNGs go to FOLDER, recordings come
from TRACES.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from app_server import CHROMIUM_ARGUMENTS, chromium, serve
from playwright.sync_api import Page, sync_playwright

PAGES = ("", "mask_diff", "findings", "run", "snapshots")
THEMES = ("light", "dark")
SIZE = {"width": 1440, "height": 900}


def settled(page: Page) -> None:
    """Wait until the script has run and the charts are drawn."""
    page.wait_for_selector("[data-testid=stApp]", timeout=30_000)
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'",
        timeout=60_000,
    )
    page.wait_for_timeout(1500)


def photograph(folder: Path, traces: Path, query: str, pages: tuple[str, ...] = PAGES) -> None:
    """One PNG a page and theme."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as elsewhere,
        serve(traces, Path(elsewhere)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGUMENTS)
        for theme in THEMES:
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            for name in pages:
                page.goto(f"{address}/{name}?{query}")
                settled(page)
                main = page.locator("[data-testid=stMain]")
                height = main.evaluate("node => node.scrollHeight") + 10
                page.set_viewport_size({"width": SIZE["width"], "height": min(height, 4000)})
                page.wait_for_timeout(600)
                page.screenshot(path=folder / f"{name or 'step-inspector'}-{theme}.png")
                page.set_viewport_size(SIZE)
            page.close()
        browser.close()


if __name__ == "__main__":
    query = sys.argv[3] if len(sys.argv) > 3 else ""
    chosen = tuple(sys.argv[4].split(",")) if len(sys.argv) > 4 else PAGES
    photograph(Path(sys.argv[1]), Path(sys.argv[2]), query, chosen)

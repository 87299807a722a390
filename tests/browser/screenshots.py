"""Photographs every page in both themes.

``python tests/browser/screenshots.py FOLDER TRACES [QUERY]``: PNGs go to FOLDER, recordings come
from TRACES.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from app_server import CHROMIUM_ARGUMENTS, chromium, serve
from driver import open_page, settle
from playwright.sync_api import sync_playwright

PAGES = ("", "mask_diff", "findings", "run", "isolate", "live", "snapshots")
THEMES = ("light", "dark")
SIZE = {"width": 1440, "height": 900}


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
                open_page(page, address, name, query)
                main = page.locator("[data-testid=stMain]")
                height = main.evaluate("node => node.scrollHeight") + 10
                page.set_viewport_size({"width": SIZE["width"], "height": min(height, 4000)})
                settle(page)
                page.screenshot(path=folder / f"{name or 'step-inspector'}-{theme}.png")
                page.set_viewport_size(SIZE)
            page.close()
        browser.close()


if __name__ == "__main__":
    query = sys.argv[3] if len(sys.argv) > 3 else ""
    chosen = tuple(sys.argv[4].split(",")) if len(sys.argv) > 4 else PAGES
    photograph(Path(sys.argv[1]), Path(sys.argv[2]), query, chosen)

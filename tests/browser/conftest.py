"""A headless Chromium and the real app; without Chromium these tests are skipped, on CI they fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_server import CHROMIUM_ARGUMENTS, chromium, serve

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workbench"))


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if chromium() is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine: apt-get install chromium")
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address of the app and its folder of recordings, started from another directory."""
    from sample import broken_step, continued, make_step

    from engine.trace.header import PromptRecord, TraceHeader
    from engine.trace.writer import TraceWriter

    folder = tmp_path_factory.mktemp("recordings")
    prompt = PromptRecord("r0", "Write a poem", (1, 2), (0, 1, 3, 5, 8) * 20)
    header = TraceHeader(created_by="sample", prompts=(prompt,))
    with TraceWriter(folder / "mixed.ddtree.arrow", header) as out:
        steps = [make_step(0), make_step(1), broken_step(2), broken_step(3), make_step(4)]
        for step in continued(steps):
            out.write(step)
    with serve(folder, tmp_path_factory.mktemp("elsewhere")) as address:
        yield address, folder

"""The Isolate page in a real browser: a prepared experiment opened, a cell picked, its texts read, in both themes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from driver import SLOW, chart, click_point, open_page, query, settle, spec
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
INJECTED = ".katex, img[src=x], a[href^=javascript], strong:text-is('b')"


@pytest.fixture
def lab(app: tuple[str, Path]) -> Path:
    """The story, with one recording and one text of a stranger."""
    from dataclasses import replace

    from lab_sample import HOSTILE, SMALL, compared, made, story

    folder = app[1] / "labs" / "story"
    shutil.rmtree(folder, ignore_errors=True)
    results = [story(cell, "mixed.ddtree.arrow" if cell.budget == 16 else None) for cell in SMALL]
    hostile = compared(text=HOSTILE, at=0, prompt=HOSTILE)
    results[-1] = replace(results[-1], requests=(hostile,), sentence=HOSTILE)
    store = made(folder, results, fault="verify-width")
    shutil.copy(app[1] / "mixed.ddtree.arrow", store.traces)
    return folder


def opened(browser: Browser, theme: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 1700}, color_scheme=theme)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_experiment_is_opened_and_a_cell_picked(
    theme: str, browser: Browser, app: tuple[str, Path], lab: Path, tmp_path: Path
) -> None:
    page = opened(browser, theme)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    open_page(page, app[0], "isolate", "lab=story")
    expect(page.get_by_text("Wrong only where q_len ≠ block size 8")).to_be_visible(timeout=SLOW)
    drawn = {trace["name"]: trace for trace in spec(page, "lab-matrix")["data"]}
    assert len(drawn["places"]["customdata"]) == 16
    assert len(drawn["wrong"]["x"]) == len(drawn["clean"]["x"]) == 8

    click_point(
        page, "lab-matrix", "places", 8, below=52
    )  # its bar is a row high; this is the third
    assert query(page)["cell"] == "b16-k1-eager-n1-p0"
    cell = page.locator(".st-key-lab-cell")
    expect(cell.locator("code").filter(has_text="⟦abuma⟧")).to_be_visible(timeout=SLOW)
    expect(cell.locator("code").filter(has_text="⟦wide⟧")).to_be_visible()
    page.screenshot(path=tmp_path / f"isolate-{theme}.png")
    assert (tmp_path / f"isolate-{theme}.png").stat().st_size > 20_000

    page.reload()
    settle(page)
    expect(cell).to_contain_text("top-k 1, graphs off, batch 1", timeout=SLOW)
    cell.get_by_role("link", name="Step inspector").click()
    expect(chart(page, "tree")).to_be_visible(timeout=SLOW)
    settle(page)
    assert query(page)["trace"] == str(lab / "traces" / "mixed.ddtree.arrow")
    page.get_by_role("link", name="Isolate").click()
    expect(cell).to_contain_text("top-k 1, graphs off, batch 1", timeout=SLOW)
    assert problems == []
    page.close()


def test_text_of_a_stranger_is_text(browser: Browser, app: tuple[str, Path], lab: Path) -> None:
    page = opened(browser, "light")
    open_page(page, app[0], "isolate", "lab=story&cell=b16-k4-graphs-n2-p0")
    expect(page.locator(".st-key-lab-cell code").filter(has_text="<img src=x").first).to_be_visible(
        timeout=SLOW
    )
    expect(page.locator(INJECTED)).to_have_count(0)
    page.close()


def test_what_is_saved_is_opened_again(
    browser: Browser, app: tuple[str, Path], lab: Path, tmp_path: Path
) -> None:
    page = opened(browser, "light")
    open_page(page, app[0], "isolate", "lab=story")
    page.get_by_role("button", name="Save …").click()
    with page.expect_download(timeout=SLOW) as waited:
        page.get_by_role("button", name="Save experiment").click()
    path = tmp_path / "sent.isolate.zip"
    waited.value.save_as(path)
    open_page(page, app[0], "isolate")
    page.get_by_role("button", name="Open a file").click()
    page.locator("input[type=file]").set_input_files(path)
    page.wait_for_url("**lab=imported**", timeout=SLOW)
    expect(page.get_by_text("made elsewhere")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Wrong only where q_len ≠ block size 8")).to_be_visible()
    expect(page.get_by_role("button", name="Repeat")).to_have_count(0)
    page.close()

"""The story in a real browser: verdict, fault, node, mask, offsets, snapshot, URL.

Run: pytest tests/browser -m browser.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from driver import chart, click_point, expect_step, open_page, press, query, settle, spec
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
SLOW = 30_000
CAUSE_STRIP = "strip-cause-I1-width-mismatch-fault"


@pytest.fixture
def page(browser: Browser):
    page = browser.new_page(viewport={"width": 1440, "height": 1800})
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    page.close()


def test_from_verdict_to_the_cell_to_a_snapshot_and_back(
    page: Page, app: tuple[str, Path], tmp_path: Path
) -> None:
    address, _ = app
    open_page(page, address, query="trace=mixed&step=0")

    verdict = page.locator(".st-key-verdict")
    expect(verdict).to_contain_text("step 2, request r0, row 1: reads cell", timeout=SLOW)
    expect(verdict).to_contain_text("used for 17 rows")
    page.get_by_role("button", name="Go there").click()
    settle(page)
    assert query(page)["step"] == "2"
    assert query(page)["node"] == "1"
    expect(page.locator(".st-key-node-bar")).to_contain_text("node 1")

    click_point(page, "tree", "nodes", 5)
    assert query(page)["node"] == "5"
    expect(page.locator(".st-key-node-bar")).to_contain_text("node 5")
    assert spec(page, "mask")["shapes"][0]["y0"] == 4.5
    ring = next(t for t in spec(page, "tree")["data"] if t["name"] == "selected")
    assert len(ring["x"]) == 1
    should = next(t for t in spec(page, "row-cells")["data"] if t["name"] == "should be")
    assert should["x"][0] == 5 * (20 + 17) + 20

    page.get_by_test_id("stTopNavLink").filter(has_text="Snapshots").click()
    settle(page)
    assert query(page)["node"] == "5"
    expect(page.get_by_text("What is left out:")).to_be_visible(timeout=SLOW)
    with page.expect_download(timeout=SLOW) as download:
        page.get_by_role("button", name="Save snapshot").click()
    saved = tmp_path / "report.ddtree.zip"
    download.value.save_as(saved)
    assert "report.html" in zipfile.ZipFile(saved).namelist()

    page.locator("input[type=file]").set_input_files(saved)
    expect(page.get_by_text("findings recorded in it")).to_be_visible(timeout=SLOW)
    settle(page)
    page.locator(".st-key-open-import button").click()
    settle(page)
    expect(chart(page, "tree")).to_be_visible(timeout=SLOW)
    assert query(page)["trace"].startswith("report-")
    assert (query(page)["step"], query(page)["node"]) == ("2", "5")
    expect(page.locator(".st-key-verdict")).to_contain_text("used for 17 rows")
    expect(page.locator(".st-key-node-bar")).to_contain_text("#5")  # the text was left out
    assert page.problems == []


def test_a_pick_in_the_mask_shows_in_the_tree(page: Page, app: tuple[str, Path]) -> None:
    open_page(page, app[0], query="trace=mixed&step=2")
    click_point(page, "mask", "gutter", 7)
    assert query(page)["node"] == "7"
    tree = spec(page, "tree")["data"]
    nodes = next(t for t in tree if t["name"] == "nodes")
    ring = next(t for t in tree if t["name"] == "selected")
    at = nodes["customdata"].index(7)
    assert (ring["x"], ring["y"]) == ([nodes["x"][at]], [nodes["y"][at]])
    click_point(page, "mask", "pick", 3)
    assert query(page)["node"] == "3"
    click_point(page, "acceptance", "reference", 8)
    assert query(page)["node"] == "8"


def test_the_strip_and_the_keys_move_through_steps(page: Page, app: tuple[str, Path]) -> None:
    open_page(page, app[0], query="trace=mixed&step=0")
    click_point(page, "strip", "faults", 3)
    assert query(page)["step"] == "3"
    for keys, step in (
        ("ArrowLeft", "2"),
        ("ArrowRight", "3"),
        ("Home", "0"),
        ("Shift+ArrowRight", "2"),
        ("End", "4"),
        ("Shift+ArrowLeft", "3"),
    ):
        press(page, keys)
        expect_step(page, step)


@pytest.mark.parametrize("name", ["", "mask_diff", "findings"])
def test_the_url_reproduces_the_view(
    name: str, page: Page, browser: Browser, app: tuple[str, Path]
) -> None:
    open_page(page, app[0], name, "trace=mixed&step=3&node=4&mask=addressed&rows=2-9&columns=25-35")
    page.locator(".st-key-jump-previous-step button").first.click()
    expect_step(page, "2")
    other = browser.new_page(viewport={"width": 1440, "height": 1800})
    open_page(
        other, page.url.partition("?")[0].rpartition("/")[0], name, page.url.partition("?")[2]
    )
    expect_step(other, "2")
    for key in {
        "": ("tree", "mask", "strip"),
        "mask_diff": ("window", "overview"),
        "findings": (CAUSE_STRIP,),
    }[name]:
        assert spec(other, key) == spec(page, key)
    other.close()


def test_a_link_with_a_filter_and_a_click_in_the_strip_that_goes_to_the_cell(
    page: Page, app: tuple[str, Path]
) -> None:
    open_page(page, app[0], "findings", "trace=mixed&step=0&steps=3")
    expect(page.get_by_role("textbox", name="steps")).to_have_value("3")
    expect(page.get_by_text("1 cause · 3 of 6 findings")).to_be_visible(timeout=SLOW)
    faults = next(t for t in spec(page, CAUSE_STRIP)["data"] if t["name"] == "faults")
    assert faults["x"] == [3]
    click_point(page, CAUSE_STRIP, "faults", 0)
    expect(page.locator(".st-key-node-bar")).to_contain_text("node 1", timeout=SLOW)
    place = {"step": "3", "rank": "0", "request": "r0", "node": "1", "steps": "3"}
    assert query(page) == {"trace": "mixed", **place}
    assert page.problems == []


def test_token_text_is_not_html(page: Page, app: tuple[str, Path]) -> None:
    open_page(page, app[0], query="trace=mixed&step=2&node=8")  # its text is <b>x</b>
    expect(page.locator(".st-key-node-bar code").first).to_have_text("<b>x</b>", timeout=SLOW)
    labels = chart(page, "tree").locator("text").filter(has_text="<b>x</b>")
    expect(labels.first).to_be_visible(timeout=SLOW)

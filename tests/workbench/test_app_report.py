"""The report for a bug: self-contained, escaped, silent. Run: pytest
tests/workbench/test_app_report.py.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.trace.reader import Trace, open_trace
from workbench.report import build_report


def opened(folder: Path, name: str) -> Trace:
    return open_trace(folder / f"{name}.ddtree.arrow")


class Tags(HTMLParser):
    """Tags with their attributes, and the text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._script = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.text += data


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


@pytest.fixture(scope="module")
def broken(recorded: Path) -> str:
    trace = opened(recorded, "broken")
    return build_report(trace, [1, 3], check_trace(trace).findings, include_text=True)


def test_it_says_what_the_app_says(broken: str) -> None:
    text = parsed(broken).text
    assert "step 1, request r0, row 1: reads cell 44 where its own is 53: width 8" in text
    assert "Step 1, rank 0, request r0" in text
    assert "Step 3, rank 0, request r0" in text
    assert "Step 2" not in text
    assert "intended = built ≠ addressed: the metadata is wrong" in text
    assert "17 * (17 + 17) = 578" in text
    assert "mask-extents" in text


def test_it_holds_every_figure_once_and_plotly_once(broken: str) -> None:
    plots = [a["id"] for tag, a in parsed(broken).tags if tag == "div" and a.get("class") == "plot"]
    assert plots == [
        f"figure-{k}" for k in range(14)
    ]  # tree, four masks, offsets, acceptance; two steps
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', broken, re.S)[1])
    assert len(figures) == 14
    assert broken.count("* plotly.js v") == 1


def test_it_asks_nobody_for_anything(broken: str) -> None:
    tags = parsed(broken).tags
    for _, attributes in tags:
        assert not {"src", "href", "action", "srcset"} & set(attributes)
    policy = next(a["content"] for t, a in tags if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy
    assert "showSendToCloud: false" in broken


def test_hostile_text_stays_text(recorded: Path) -> None:
    trace = opened(recorded, "hostile")
    page = build_report(trace, range(len(trace)), check_trace(trace).findings, include_text=True)
    known = {
        "html",
        "head",
        "meta",
        "title",
        "script",
        "style",
        "body",
        "main",
        "p",
        "section",
        "h1",
        "h2",
        "figure",
    }
    known |= {
        "figcaption",
        "div",
        "pre",
        "details",
        "summary",
        "ul",
        "li",
        "table",
        "tr",
        "td",
        "th",
    }
    assert {tag for tag, _ in parsed(page).tags} <= known
    assert sum(tag == "script" for tag, _ in parsed(page).tags) == 4
    assert "<script>alert(1)" not in page
    assert "<i>r</i>" not in page


def test_without_text_only_ids_are_left(recorded: Path) -> None:
    trace = opened(recorded, "broken")
    findings = check_trace(trace).findings
    page = build_report(trace, [1], findings)
    outside = page.partition("</script>")[2]
    for word in ("ocean", "whale", "Write a poem"):
        assert word not in outside
        assert (
            word in build_report(trace, [1], findings, include_text=True) or word == "Write a poem"
        )
    assert "#1" in outside


def test_no_steps_and_many_steps(recorded: Path) -> None:
    trace = opened(recorded, "clean")
    assert "nothing wrong" in build_report(trace, range(len(trace)), ())
    assert "no steps recorded" in build_report(trace, [], ())

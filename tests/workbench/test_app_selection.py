"""One selection, in the URL, on every page. Run: pytest tests/workbench/test_app_selection.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driver import PAGES, figures, open_app, params, words

PLACE = {"trace": "pair", "step": "3", "rank": "0", "request": "r1", "node": "9"}


@pytest.mark.parametrize("page", PAGES)
def test_the_url_selects_and_stays(page: str, traces: Path) -> None:
    at = open_app(page, **PLACE)
    assert {name: params(at)[name] for name in PLACE} == PLACE
    assert at.selectbox(key="header trace").value == "pair"
    assert at.number_input(key="header step").value == 3
    assert at.selectbox(key="header request").value == "r1"
    assert at.number_input(key="header node").value == 9


@pytest.mark.parametrize("page", [page for page in PAGES if page != "snapshots"])
def test_the_header_writes_the_url(page: str, traces: Path) -> None:
    at = open_app(page, **PLACE)
    at.number_input(key="header node").set_value(4).run()
    assert params(at)["node"] == "4"
    at.button(key="jump previous step").click().run()
    assert params(at) == {**PLACE, "node": "4", "step": "2"}
    at.selectbox(key="header request").set_value("r0").run()
    assert params(at)["request"] == "r0"


def test_jumps_know_steps_and_faults(traces: Path) -> None:
    at = open_app(trace="pair", step=0)
    assert at.button(key="jump previous step").disabled
    assert at.button(key="jump previous fault").disabled
    at.button(key="jump next fault").click().run()
    assert params(at)["step"] == "1"
    at.button(key="jump next fault").click().run()
    assert params(at)["step"] == "3"
    assert at.button(key="jump next fault").disabled
    at.button(key="jump first fault").click().run()
    assert params(at)["step"] == "1"
    at.button(key="jump last step").click().run()
    assert params(at)["step"] == "3"
    at.button(key="jump first step").click().run()
    assert params(at)["step"] == "0"


def test_it_opens_on_the_first_fault(traces: Path) -> None:
    assert open_app(trace="pair").number_input(key="header step").value == 1


def test_go_there_selects_step_request_and_node(traces: Path) -> None:
    at = open_app(trace="pair", step=2)
    at.button(key="go there").click().run()
    assert params(at) == {"trace": "pair", "step": "1", "rank": "0", "request": "r0", "node": "1"}


def test_a_pick_in_the_tree_is_shown_everywhere(traces: Path) -> None:
    at = open_app(trace="broken", step=1)
    assert "No node is selected" in words(at)
    at.number_input(key="header node").set_value(6).run()
    tree = next(f for f in figures(at) if any(part.get("name") == "nodes" for part in f["data"]))
    ring = next(part for part in tree["data"] if part.get("name") == "selected")
    assert len(ring["x"]) == 1
    mask = next(f for f in figures(at) if any(part.get("name") == "gutter" for part in f["data"]))
    assert mask["layout"]["shapes"][0]["y0"] == 5.5
    assert "**node 6**" in words(at)


def test_another_recording_starts_at_its_own_first_fault(traces: Path) -> None:
    at = open_app(**PLACE)
    at.selectbox(key="header trace").set_value("broken").run()
    assert params(at) == {"trace": "broken"}
    assert at.number_input(key="header step").value == 0


def test_ranks_can_be_chosen(traces: Path) -> None:
    at = open_app(trace="ranks", rank=0)
    assert "intended = built = addressed" in words(at)
    at.selectbox(key="header rank").set_value(1).run()
    assert params(at)["rank"] == "1"
    assert "≠ addressed" in words(at)


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ({"step": "99"}, "step 99 is not in this recording; showing step 3"),
        ({"step": "-1"}, "showing step 0"),
        ({"step": "9" * 400}, "is not in this recording"),
        ({"rank": "x"}, "rank x is not in this recording; showing rank 0"),
        ({"node": "17"}, r"node 17 is not in this step \(0 … 16\); none is selected"),
        ({"request": "zz"}, "request zz is not in step"),
        ({"mask": "<b>"}, ""),
        ({"rows": "5-1", "columns": "a-b"}, ""),
        ({"left": ":::@", "right": "built:x:y:z"}, ""),
    ],
)
def test_impossible_urls_are_said_and_survived(
    query: dict[str, str], note: str, traces: Path
) -> None:
    for page in ("step_inspector", "mask_diff"):
        at = open_app(page, trace="pair", **query)
        assert not at.exception
        assert note.replace("-", r"\-") in words(at) or note in words(at)


def test_a_path_is_a_recording_too(traces: Path) -> None:
    at = open_app(trace=str(traces / "clean.ddtree.arrow"))
    assert "nothing wrong" in at.success[0].value


def test_the_views_of_a_page_are_in_the_url(traces: Path) -> None:
    at = open_app(trace="broken", step=0, mask="built", prefix="1")
    mask = next(f for f in figures(at) if any(part.get("name") == "gutter" for part in f["data"]))
    cells = next(part for part in mask["data"] if part["name"] == "cells")
    assert cells["z"]["shape"] == "17, 31"


def test_a_page_change_keeps_the_selection(traces: Path) -> None:
    at = open_app(**PLACE)
    at.query_params.clear()  # what the browser sends after a click in the navigation
    at.run()
    assert {name: params(at)[name] for name in PLACE} == PLACE

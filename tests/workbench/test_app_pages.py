"""Every page over clean, broken, hostile, empty and unreadable recordings. Run: pytest
tests/workbench/test_app_pages.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_driver import CALM, PAGES, figures, open_app, params, words

from workbench.traces import Origin, entries

STEPS_OF_HOSTILE = range(5)


@pytest.mark.parametrize("page", PAGES)
def test_broken_recording(page: str, traces: Path) -> None:
    at = open_app(page, trace="broken", step=3, node=5)
    assert not at.exception
    said = at.get("page_link")[0].proto.label if page in CALM else at.error[0].value
    assert "reads cell 38 where its own is 47" in said
    assert params(at)["node"] == "5"


@pytest.mark.parametrize("page", PAGES)
def test_clean_recording(page: str, traces: Path) -> None:
    at = open_app(page, trace="clean")
    assert not at.exception
    assert not at.error
    said = at.get("page_link")[0].proto.label if page in CALM else at.success[0].value
    assert "4 steps" in said
    assert "nothing wrong" in said


@pytest.mark.parametrize("page", PAGES)
def test_hostile_recording(page: str, traces: Path) -> None:
    at = open_app(page, trace="hostile", step=0, node=1)
    for step in STEPS_OF_HOSTILE:
        at.number_input(key="header step").set_value(step).run()
        assert not at.exception
        assert params(at)["step"] == str(step)
        shown = words(at)
        assert "<script>alert" not in shown.replace("`<script>alert(1)</script>`", "")
        assert not any(markdown.proto.allow_html for markdown in at.markdown)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty", "nothing was checked"),
        ("torn", "cannot be read"),
        ("nowhere", "there is no recording"),
    ],
)
def test_nothing_to_show_is_said(page: str, name: str, says: str, traces: Path) -> None:
    at = open_app(page, trace=name)
    assert not at.exception
    labels = [link.proto.label for link in at.get("page_link")]
    assert says in "\n".join([words(at), *labels])


def test_inspector_shows_all_panes(traces: Path) -> None:
    at = open_app(trace="broken", step=3, node=5)
    names = [{part.get("name") for part in figure["data"]} for figure in figures(at)]
    for wanted in ("faults", "nodes", "reference", "cells", "used"):
        assert any(wanted in found for found in names), wanted
    shown = words(at)
    assert "intended = built ≠ addressed: the metadata is wrong, the buffer is right" in shown
    assert "17 * (23 + 17) = 680" in shown
    assert "row 5 cells :red[✖] `155 – 185` (should be `200 – 239`)" in shown
    assert "token 2 is `␠salt` (id 13), plain decoding writes `'s` (id 3)" in shown


def test_clean_inspector_says_that_masks_agree(traces: Path) -> None:
    shown = words(open_app(trace="clean", mask="difference"))
    assert "intended = built = addressed" in shown
    assert "addressed against intended: no cell differs" in shown


def test_mask_diff_lists_cells_and_quotes_the_check(traces: Path) -> None:
    at = open_app("mask_diff", trace="broken", step=3)
    assert "**292 of 680 cells differ** in 16 rows" in words(at)
    assert "width-mismatch" in words(at)
    table = at.dataframe[0].value
    assert len(table) == 292
    assert table.iloc[0].to_dict() | {"local row": 1} == {
        "row": 1,
        "local row": 1,
        "node": "␠ocean",
        "column": 25,
        "sees": "2 ␠sea",
        "byte": 56,
        "left": "hidden",
        "right": "visible",
        "what": "extra",
    }


def test_mask_diff_compares_any_two_steps_and_recordings(traces: Path) -> None:
    at = open_app("mask_diff", trace="clean", step=0, right="built:1:0:r0")
    assert "left has 17 rows behind 14 prefix columns, right 17 behind 17" in words(at)
    at = open_app("mask_diff", trace="clean", step=0, right="addressed:0:0:r0@broken")
    assert not at.exception
    assert "cells differ" in words(at)
    at = open_app("mask_diff", trace="clean", right="addressed:77:0:nobody@broken")
    assert "There is no request nobody in step 77" in words(at)


def test_mask_diff_window_comes_from_the_url(traces: Path) -> None:
    at = open_app("mask_diff", trace="broken", step=0, rows="2-4", columns="10-20")
    window = figures(at)[1]["data"][0]
    assert (window["y0"], window["x0"], window["z"]["shape"]) == (2, 10, "3, 11")


def test_it_opens_on_the_story_when_nothing_is_asked(traces: Path) -> None:
    at = open_app()
    assert not at.exception
    assert at.selectbox(key="header trace").value == "sglang-16-4-verify-width"
    assert "used for 17 rows" in at.error[0].value
    assert "plain decoding writes" in words(at)


def test_every_bundled_recording_opens_with_the_verdict_of_its_name(traces: Path) -> None:
    bundled = [entry.key for entry in entries() if entry.origin is Origin.BUNDLED]
    assert len(bundled) >= 6
    at = open_app(trace=bundled[0])
    for key in bundled:
        at.selectbox(key="header trace").set_value(key).run()
        assert not at.exception
        harmless = (
            key == "story-7-1-verify-width"
        )  # budget + 1 is block size: the wrong width is right
        faulty = key.endswith(("-width", "-mask")) and not harmless
        assert bool(at.error) == faulty, key


HOSTILE_URLS = (
    {"step": "-1"},
    {"step": "٣"},
    {"node": 10**20},
    {"rank": 99, "request": "<script>alert(1)</script>"},
    {"trace": "../../etc/passwd"},
    {"trace": "~nobody-at-all/x"},
    {"trace": "a\0b"},
    {"trace": "x" * 5000},
    {"trace": "/dev/zero"},
    {"trace": "/proc"},
    {"left": "junk", "right": "../..|a|b", "rows": "9" * 30, "columns": "5-2", "show": "%%"},
    {"checks": ",%2C", "effects": "<b>x</b>", "requests": "a," * 400, "ranks": "-1", "steps": "x-"},
)


@pytest.mark.parametrize("query", HOSTILE_URLS, ids=str)
@pytest.mark.parametrize("page", PAGES)
def test_a_url_that_anybody_may_type_gives_a_sentence(page: str, query: dict, traces: Path) -> None:
    at = open_app(page, **query)
    assert not at.exception
    assert at.error or at.warning or at.success or at.get("page_link")


def test_a_problem_names_the_path_once(traces: Path) -> None:
    (traces / "bad.jsonl").write_text('{"oops\n')
    at = open_app(trace=str(traces / "bad.jsonl"))
    assert words(at).count("bad\\.jsonl") == 1
    assert "line 1" in words(at)


def test_a_pipe_or_a_dangling_link_among_the_recordings_keeps_the_app_going(traces: Path) -> None:
    os.mkfifo(traces / "pipe.jsonl")
    (traces / "gone.jsonl").symlink_to(traces / "nowhere")
    for trace in (traces / "pipe.jsonl", traces):
        at = open_app(trace=str(trace))
        assert not at.exception
        assert at.warning

"""Values of the URL that a page cannot use: one sentence each, and the page works on.

Run: pytest tests/workbench/test_app_unusable.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_driver import PAGES, figures, open_app, params, words
from hypothesis import given
from hypothesis import strategies as st

from engine.layout import MaskKind
from workbench.mask_diff import span_of
from workbench.sides import Side, is_readable, parse
from workbench.tokens import for_markdown
from workbench.traces import entries, safe_name
from workbench.unusable import sentence

BASE = Side(MaskKind.INTENDED, 0, 0, "r0")
HUGE = "9" * 30


@pytest.mark.parametrize(
    ("page", "name", "value", "expected"),
    [
        ("step_inspector", "mask", "measured", "one of intended, built, addressed, difference"),
        ("step_inspector", "prefix", "yes", "0 or 1"),
        ("step_inspector", "weights", "**2**", "0 or 1"),
        ("mask_diff", "rows", "5-1", "first-last within 0 … 16"),
        ("mask_diff", "rows", f"{HUGE}-{HUGE}", "first-last within 0 … 16"),
        ("mask_diff", "columns", "<b>x</b>", "first-last within 0 … 30"),
        ("mask_diff", "left", "junk", "one of intended, built, addressed, measured:step:rank"),
        ("mask_diff", "right", f"built:{HUGE}:0:r0", "one of intended, built, addressed, measured"),
        ("mask_diff", "right", "difference:0:0:r0", "one of intended, built, addressed, measured"),
        ("mask_diff", "right", "built:-1:0:r0", "one of intended, built, addressed, measured"),
        ("mask_diff", "kernel", "fa3", "one of engine, sglang, addressed"),
    ],
)
def test_a_view_that_cannot_be_had_is_one_sentence(
    page: str, name: str, value: str, expected: str, traces: Path
) -> None:
    at = open_app(page, trace="broken", step=0, **{name: value})
    assert not at.exception
    said = [caption.value for caption in at.caption if caption.value.startswith(f"{name}\\:")]
    assert len(said) == 1
    assert said[0].startswith(for_markdown(f"{name}: expected {expected}"))
    assert said[0].endswith("it is ignored")
    plain = open_app(page, trace="broken", step=0)
    assert figures(at) == figures(plain)  # as without it


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("value", ["0", "1"])
def test_a_view_that_can_be_had_says_nothing(page: str, value: str, traces: Path) -> None:
    views = {"mask": "built", "prefix": value, "weights": value, "rows": "0-4", "columns": "3-9"}
    at = open_app(page, trace="broken", step=0, left="built:0:0:r0", **views)
    assert "it is ignored" not in words(at)


def test_the_sentence_is_short() -> None:
    assert sentence("rows", "3-7", "x") == "rows: expected 3-7, found 'x'; it is ignored"
    assert len(sentence("rows", "3-7", "\u202e" * 100_000)) < 400


@given(st.text(), st.one_of(st.none(), st.text(min_size=1)))
def test_any_request_and_recording_survive_the_url(rid: str, trace: str | None) -> None:
    side = Side(MaskKind.BUILT, 3, 1, rid, trace)
    assert is_readable(side.to_text())
    assert parse(side.to_text(), BASE) == side


@given(st.text())
def test_any_text_is_a_side_or_the_default(text: str) -> None:
    assert parse(text, BASE) == BASE or is_readable(text)


@given(st.text("0123456789-²٣ "), st.integers(1, 300))
def test_a_span_lies_inside(text: str, size: int) -> None:
    found = span_of(text, size)
    assert found is None or 0 <= found[0] < found[1] <= size


def test_a_recording_that_is_not_there_is_named_once_and_short(traces: Path) -> None:
    at = open_app("mask_diff", trace="clean", right="built:0:0:r0@" + "A" * 900)
    assert not at.exception
    warning = at.warning[0].value
    assert warning.count("A" * 50) == 1
    assert len(warning) < 200


@pytest.mark.parametrize("page", PAGES)
def test_a_file_name_that_is_no_utf8_can_be_picked(page: str, traces: Path) -> None:
    source = (traces / "clean.ddtree.arrow").read_bytes()
    with open(os.fsencode(traces) + b"/odd-\xff.ddtree.arrow", "wb") as file:
        file.write(source)
    key = r"odd-\udcff"
    assert key in [entry.key for entry in entries()]
    at = open_app(page, trace="clean")
    assert not at.exception
    at.selectbox(key="header trace").set_value(key).run()
    assert not at.exception
    assert params(at)["trace"] == key
    assert not at.warning


def test_a_safe_name_is_short_in_bytes() -> None:
    assert safe_name("a/b\\c\0d") == "a-b-c-d"
    assert safe_name("\udcff..") == "recording"
    assert safe_name("…") == "recording"
    long = safe_name("海" * 300)
    assert long == "海" * 26

"""Untrusted token texts. Run: pytest tests/workbench/test_app_tokens.py."""

from __future__ import annotations

import json

import plotly.io as pio
import pytest
from sample import HOSTILE_TEXTS, hostile_steps

from engine.checks.context import StepContext
from engine.layout import MaskKind
from workbench.figures.acceptance import acceptance_paths
from workbench.figures.mask import mask_figure
from workbench.figures.mask_codes import plain
from workbench.figures.offsets import offsets_ruler, row_cells
from workbench.figures.tree import draft_tree
from workbench.stepview import view_of
from workbench.theme import DARK, LIGHT
from workbench.tokens import as_code, for_markdown, for_plotly, message, shorten, visible


def test_whitespace_is_visible() -> None:
    assert visible(" a\n\tb\u00a0") == "␠a↵⇥b⍽"


def test_what_has_no_shape_is_named() -> None:
    assert visible("\x00\u202e\u200b") == "‹0›‹202E›‹200B›"


def test_shorten_keeps_the_length() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_plotly_text_holds_no_markup(text: str) -> None:
    escaped = for_plotly(visible(text))
    assert not set("<>{}$\"'") & set(escaped)


def test_markdown_is_escaped() -> None:
    assert for_markdown("[a](b) *c* :red[d] $e$ `f` <g>") == (
        r"\[a\]\(b\) \*c\* \:red\[d\] \$e\$ \`f\` \<g\>"
    )


def test_text_that_turns_the_line_around_is_named() -> None:
    assert for_markdown("a \u202eb\n\x00") == "a ‹202E›b ‹0›"
    assert as_code("a \u202eb") == "`a ‹202E›b`"


def test_a_code_span_cannot_be_left() -> None:
    assert as_code("a`b\n") == "`aˋb↵`"
    assert as_code("") == "`∅`"


def test_messages_keep_their_code_spans() -> None:
    assert message("width 8 (`num_draft_tokens`)") == r"width 8 \(`num_draft_tokens`\)"
    assert message("odd ` *x*") == r"odd \` \*x\*"


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_no_figure_carries_raw_token_text(palette) -> None:
    view = view_of(StepContext(hostile_steps()[0]), 0, ())
    mask = view.mask(MaskKind.BUILT)
    figures = [
        draft_tree(view, palette, 3, edge_weights=True),
        mask_figure(view, mask, plain(mask.cells), palette, 3),
        offsets_ruler(view, palette, 3),
        row_cells(view, palette, 3),
        acceptance_paths(view, palette, 3),
    ]
    for figure in figures:
        text = json.dumps(json.loads(pio.to_json(figure)), ensure_ascii=False)
        for raw in ("<script", "<b>x", "%{x}", "$a$"):
            assert raw not in text

"""What the figures hold. Run: pytest tests/workbench/test_app_figures.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.io as pio
import pytest
from sample import PARENTS_9, broken_step, make_step

from engine.checks.context import StepContext
from engine.checks.registry import check_trace
from engine.layout import MaskKind
from engine.tree import make_tree
from workbench.figures.acceptance import acceptance_paths, first_divergence, path_of
from workbench.figures.benchmark import bench_mask_drawing
from workbench.figures.mask import mask_figure
from workbench.figures.mask_codes import Code, difference, is_wrong, plain
from workbench.figures.offsets import offsets_ruler, row_cells
from workbench.figures.strip import StepBar, step_strip
from workbench.figures.tree import draft_tree
from workbench.figures.tree_layout import BONUS, place, unplaced
from workbench.outcome import MARKS, Outcome, mark
from workbench.panes.mask_pane import chain_text, counts_text
from workbench.rows import Span, as_used, should_be, span_at
from workbench.stepview import StepView, view_of
from workbench.theme import DARK, LIGHT


def view(step, request: int = 0) -> StepView:
    return view_of(StepContext(step), request, check_trace([step]).findings)


def trace(figure, name: str) -> dict[str, Any]:
    spec = json.loads(pio.to_json(figure))
    return next(part for part in spec["data"] if part.get("name") == name)


def test_every_outcome_has_its_own_shape_and_only_faults_are_red() -> None:
    assert len({look.glyph for look in MARKS.values()}) == len(MARKS)
    assert len({look.symbol for look in MARKS.values()}) == len(MARKS)
    for name, look in MARKS.items():
        for colour in (look.light, look.dark):
            red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
            is_red = red > 180 and green < 120 and blue < 120
            assert is_red == (name is Outcome.FAULT), (name, colour)


def test_tree_places_accepted_path_and_bonus_on_the_first_line() -> None:
    tree = make_tree([-1, 0, 0, 1, 2], [1, 2, 3, 4, 5])
    assert place(tree, (0, 2), with_bonus=True) == {
        0: (0, 0),
        2: (1, 0),
        BONUS: (2, 0),
        4: (2, 1),
        1: (1, 2),
        3: (2, 2),
    }


def test_no_two_nodes_share_a_place() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        parents = [-1, *(int(rng.integers(0, node)) for node in range(1, 65))]
        places = place(make_tree(parents, [0] * 65), (0,), with_bonus=True)
        assert len(set(places.values())) == len(places) == 66


def test_a_cycle_is_set_apart() -> None:
    step = make_step(0, parents=PARENTS_9, budget=8)
    tree = step.requests[0].tree
    broken = replace(tree, parents=np.array([-1, 2, 1, 0, 3, 3, 0, 6, 7]))
    step = replace(step, requests=(replace(step.requests[0], tree=broken),))
    assert unplaced(broken.tree) == [1, 2]
    assert trace(draft_tree(view(step), LIGHT), "apart")["customdata"] == [1, 2]


def test_tree_shows_outcomes_bonus_and_padding() -> None:
    figure = draft_tree(view(make_step(0, parents=PARENTS_9)), LIGHT, 3)
    nodes = trace(figure, "nodes")
    accepted = {0, 1, 3, 5, 8}
    for node, symbol in zip(nodes["customdata"], nodes["marker"]["symbol"], strict=True):
        expected = "diamond" if node == 0 else "circle" if node in accepted else "circle-open"
        assert symbol == expected, node
    assert trace(figure, "bonus")["marker"]["symbol"] == "star"
    assert trace(figure, "apart")["customdata"] == list(range(9, 17))
    ring = trace(figure, "selected")
    at = nodes["customdata"].index(3)
    assert (ring["x"][0], ring["y"][0]) == (nodes["x"][at], nodes["y"][at])


def test_mask_codes_of_a_difference() -> None:
    left = np.array([[1, 0, 1, 0, 1]], np.int8)
    right = np.array([[1, 1, 0, -1, -1]], np.int8)
    codes = difference(right, left, 1)
    assert codes.tolist() == [[Code.VISIBLE, Code.EXTRA, Code.MISSING, Code.HIDDEN, Code.UNCOVERED]]
    assert codes.dtype == np.uint8
    assert difference(right, left, 0).tolist() == [[1, 2, 2, 0, 2]]


def test_mask_difference_is_what_the_checks_call_different() -> None:
    for bs in (1, 2):
        step = broken_step(1, bs=bs)
        context = StepContext(step)
        for request in range(bs):
            mine = view(step, request)
            addressed, intended = mine.mask(MaskKind.ADDRESSED), mine.mask(MaskKind.INTENDED)
            codes = difference(addressed.cells, intended.cells, mine.num_nodes)
            expected = context.difference(context.addressed[request], request).cells
            assert np.argwhere(is_wrong(codes)).tolist() == expected.tolist()


@pytest.mark.parametrize("opened", [False, True])
def test_mask_is_sent_as_bytes_with_a_gutter_that_carries_nodes(opened: bool) -> None:
    mine = view(broken_step(1))
    mask = mine.mask(MaskKind.ADDRESSED)
    figure = mask_figure(mine, mask, plain(mask.cells), LIGHT, 4, open_prefix=opened)
    cells = trace(figure, "cells")
    assert cells["z"]["dtype"] == "u1"
    columns = mask.cells.shape[1] if opened else 17
    assert cells["z"]["shape"] == f"17, {columns}"
    assert cells["x0"] == (-mask.prefix_len if opened else 0)
    assert trace(figure, "gutter")["customdata"] == list(range(17))
    assert any(part.name == "prefix" for part in figure.data) != opened


def test_folded_prefix_shows_a_wrong_cell() -> None:
    step = make_step(0)
    mask = step.inputs.custom_mask.copy()
    mask[2 * 31 + 5] = 0  # row 2, prefix position 5
    step = replace(step, inputs=replace(step.inputs, custom_mask=mask))
    mine = view(step)
    built = mine.mask(MaskKind.BUILT)
    codes = difference(built.cells, mine.mask(MaskKind.INTENDED).cells, mine.num_nodes)
    figure = mask_figure(mine, built, codes, LIGHT, is_difference=True)
    band = next(part for part in figure.data if part.name == "prefix")
    assert [int(value) for value in band.z[:, 0]] == [
        Code.MISSING if row == 2 else 1 for row in range(17)
    ]
    assert "1 differ" in figure.layout.annotations[0].text


def test_padding_is_hatched() -> None:
    mine = view(make_step(0, parents=PARENTS_9))
    mask = mine.mask(MaskKind.BUILT)
    hatch = trace(mask_figure(mine, mask, plain(mask.cells), DARK), "padding")
    assert hatch["fillpattern"]["shape"] == "/"
    assert min(hatch["y"]) == 8.5


def test_hover_names_row_column_byte_and_both_sides() -> None:
    mine = view(broken_step(0))
    addressed, intended = mine.mask(MaskKind.ADDRESSED), mine.mask(MaskKind.INTENDED)
    codes = difference(addressed.cells, intended.cells, 17)
    figure = mask_figure(mine, addressed, codes, LIGHT, is_difference=True, beside=intended)
    text = trace(figure, "cells")["hovertext"][1][2]
    assert text == (
        "row 1 = node 1 &quot;␠ocean&quot;<br>column 16 = node 2 &quot;␠sea&quot;<br>byte 38 of request r0<br>"
        "addressed: extra: attends but must not<br>its own byte is 47"
    )


def test_spans_follow_the_address_formula() -> None:
    context = StepContext(broken_step(0, bs=2))  # prefixes 14 and 19, width 8 for 17 rows
    used, should = as_used(context), should_be(context)
    assert [s for s in used if s.row in (0, 7)] == [
        Span(0, 0, 0, 22),
        Span(0, 7, 154, 176),
        Span(1, 0, 176, 203),
        Span(1, 7, 365, 392),
    ]
    assert span_at(should, 1, 0) == Span(1, 0, 527, 563)
    assert span_at(used, 0, 8) is None
    assert len(should) == 34


def test_rulers_highlight_the_selected_row_on_both() -> None:
    figure = offsets_ruler(view(broken_step(0)), LIGHT, 3)
    for lane in ("used", "should be"):
        bars = trace(figure, lane)
        chosen = [k for k, colour in enumerate(bars["marker"]["color"]) if colour == LIGHT.selected]
        assert [bars["customdata"][k] for k in chosen] == [3]
    assert trace(figure, "used")["base"][3] == 66
    assert trace(figure, "should be")["base"][3] == 93


def test_row_cells_lie_at_their_bytes() -> None:
    figure = row_cells(view(broken_step(0)), LIGHT, 3)
    assert trace(figure, "used")["x"] == list(range(80, 88))
    assert trace(figure, "should be")["x"] == list(range(107, 124))


def test_acceptance_marks_the_first_token_that_differs() -> None:
    mine = view(broken_step(0))
    ours = path_of(mine.accepted, mine.bonus, mine)
    theirs = path_of(mine.reference_accepted, mine.reference_bonus, mine)
    assert [stop.node for stop in ours] == [0, 1, None]
    assert [stop.node for stop in theirs] == [0, 1, 3, 5, 8, None]
    assert first_divergence(ours, theirs) == 2
    texts = [note.text for note in acceptance_paths(mine, LIGHT).layout.annotations]
    assert texts == ["✖ first difference"]
    clean = view(make_step(0))
    assert not acceptance_paths(clean, LIGHT).layout.annotations


def test_strip_marks_faults_and_the_current_step() -> None:
    bars = [StepBar(k, 3, 1, int(k == 2)) for k in range(4)]
    figure = step_strip(bars, LIGHT, 1)
    assert trace(figure, "faults")["customdata"] == [2]
    assert trace(figure, "accepted")["marker"]["color"][1] == LIGHT.selected
    assert figure.layout.annotations[0].text == "▼ step 1"
    assert mark(Outcome.FAULT).symbol == trace(figure, "faults")["marker"]["symbol"]


def test_sixty_five_nodes_are_legible() -> None:
    rng = np.random.default_rng(3)
    parents = [-1, *(int(rng.integers(max(0, n - 9), n)) for n in range(1, 65))]
    step = make_step(0, parents=parents, budget=64)
    figure = draft_tree(view(step), LIGHT)
    nodes = trace(figure, "nodes")
    lines = max(nodes["y"]) + 1
    assert len(nodes["x"]) == 65
    assert figure.layout.height / lines >= 20  # pixels a line, for a text of 12


def test_a_mask_of_64_by_4096_draws_fast() -> None:
    bench_mask_drawing()  # imports and caches
    measured = bench_mask_drawing()
    assert measured["exact_bytes"] < 400_000
    assert measured["overview_bytes"] < 400_000
    assert measured["exact_seconds"] < 1.0
    assert measured["overview_seconds"] < 1.0


def with_cell(step, row: int, column: int, value: int):
    """The same step with one cell of request 0's built mask set."""
    mask = step.inputs.custom_mask.copy()
    mask[row * (step.requests[0].prefix_len + 17) + column] = value
    return replace(step, inputs=replace(step.inputs, custom_mask=mask))


def test_the_chain_of_masks_says_who_is_wrong() -> None:
    clean = make_step(0)
    assert chain_text(view(clean)) == "intended = built = addressed"
    assert chain_text(view(broken_step(0))) == (
        "intended = built ≠ addressed: the metadata is wrong, the buffer is right"
    )
    leak = with_cell(clean, 2, 14 + 1, 1)
    assert chain_text(view(leak)) == "intended ≠ built = addressed: the builder is wrong"
    latent = with_cell(clean, 2, 5, 0)  # Triton does not read prefix columns
    assert chain_text(view(latent)) == (
        "intended = built = addressed; 1 wrong prefix cell that this backend never reads"
    )
    read = replace(latent, source=replace(latent.source, deterministic=True))
    assert chain_text(view(read)) == "intended ≠ built = addressed: the builder is wrong"
    unrecorded = replace(clean, inputs=replace(clean.inputs, custom_mask=None))
    assert chain_text(view(unrecorded)).startswith("intended only")


def test_counts_say_one_cell() -> None:
    mine = view(with_cell(make_step(0), 2, 15, 1))
    built, intended = mine.mask(MaskKind.BUILT), mine.mask(MaskKind.INTENDED)
    codes = difference(built.cells, intended.cells, 17)
    assert (
        counts_text(codes, "built")
        == "built against intended: 1 differing cell in 1 row: 1 extra (+)"
    )

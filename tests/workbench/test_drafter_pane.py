"""What the drafter believed and what other budgets would have accepted, as figures and sentences."""

from dataclasses import replace

import numpy as np
import pytest

from engine.decoding.acceptance_curve import CurvePoint, DraftedPlace
from engine.decoding.best_first import Candidates
from workbench.drafted import NOBODY
from workbench.figures.drafter import LATER, budget_curve, marginals
from workbench.panes.drafter_pane import curve_text, place_text
from workbench.theme import DARK, LIGHT

PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.3, 0.1]])
PLACE = DraftedPlace(
    step=4,
    rid="r0",
    root=9,
    candidates=Candidates(np.log(PROBABILITIES), np.array([[1, 2, 3], [4, 5, 6], [7, 8, 0]])),
    following=(1, 6, 44),
    accepted=1,
)


def name(token: int) -> str:
    return f"t{token}"


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_the_targets_tokens_are_marked_at_their_rank(palette):
    figure = marginals(PLACE, palette, name)
    cells, target = figure.data
    assert np.allclose(cells.z, PROBABILITIES)
    assert list(cells.text[1]) == ["t4 50", "t5 30", "t6 20\u00a0\u00a0"]
    assert [round(x - 0.4) for x in target.x] == [0, 2, LATER]
    assert list(target.y) == [1, 2, 3]
    assert target.marker.symbol == ("circle", "circle-open", "circle-open")
    assert "not among the drafter&#x27;s best 3" in target.hovertext[2]
    assert "the drafter&#x27;s 3rd best (rank 2)" in target.hovertext[1]
    assert figure.layout.xaxis.ticktext == ("best", "2nd", "3rd", "later")


def test_where_the_walk_stopped_is_said():
    text = place_text(PLACE, name)
    assert "stopped after depth 1" in text
    assert "At depth 2 the target chose `t6`, in the drafter's eyes its 3rd best (rank 2)." in text
    assert "its 3rd best (rank 2): a token beyond it. Numbers" in place_text(
        PLACE, name, ": a token beyond it"
    )
    whole = DraftedPlace(4, "r0", 9, PLACE.candidates, (1, 4, 7, 5), 3)
    assert place_text(whole, name) == "Every drafted depth was accepted: 3 tokens and the bonus."
    ends = DraftedPlace(4, "r0", 9, PLACE.candidates, (1,), 1)
    assert place_text(ends, name) == "The walk went to depth 1; the text ends at depth 1."
    text_ends = DraftedPlace(4, "r0", 9, PLACE.candidates, (1,), 2)
    assert place_text(text_ends, name) == "The walk went to depth 2; the text ends at depth 1."


def test_what_nobody_offered_is_an_empty_cell():
    tokens = np.array([[1, NOBODY, NOBODY], [NOBODY] * 3, [7, 8, 0]])
    place = replace(PLACE, candidates=Candidates(PLACE.candidates.log_probs, tokens))
    cells, target = marginals(place, LIGHT, name).data
    assert [list(row) for row in cells.text[:2]] == [["t1 70\u00a0\u00a0", "", ""], ["", "", ""]]
    assert cells.hovertext[0][1] == "depth 1, 2nd best (rank 1): no candidate"
    assert target.hovertext[1].endswith("not among the drafter&#x27;s 0 candidates")
    assert "in the drafter's eyes no candidate: it had none." in place_text(place, name)


def test_the_curve_answers_whether_a_tree_helps():
    curve = [CurvePoint(b, v, 30) for b, v in ((4, 2.0), (7, 2.4), (8, 2.5), (16, 3.0), (64, 3.6))]
    chain = CurvePoint(7, 2.0, 30)
    text = curve_text(curve, chain)
    assert "over 30 recorded places" in text
    assert "2.50 at 8, 3.00 at 16, 3.60 at 64" in text
    assert (
        "The chain of 7 accepts 2.00: a tree helps this drafter (+20% at 7 nodes, +80% at 64)"
        in text
    )
    worse = curve_text(curve, CurvePoint(7, 2.4, 30))
    assert "a tree of equal size does not help" in worse
    figure = budget_curve(curve, chain, LIGHT, 16)
    assert list(figure.data[0].x) == [4, 7, 8, 16, 64]
    assert figure.data[0].marker.size == (6, 6, 6, 11, 6)
    assert "chain of 7: 2.00" in str(figure.layout.annotations)

"""Trees out of masks, selections and links, against trees written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.sglang.assemble import Origin, assemble
from engine.sglang.raw import Tree
from engine.sglang.trees import from_links, from_mask, from_selection
from tests.sglang.raw_steps import worked_raw
from tests.sglang.worked import ints


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_selection_three_deep() -> None:
    """Top-k 2: 0 and 1 below the root; 2, 3 below 0; 4, 5 below 1; 6, 7 below 3."""
    parent_list = array(-1, 0, 1, 3)
    assert from_selection(parent_list, array(0, 1, 3, 4, 6), 2).tolist() == [-1, 0, 0, 1, 2, 3]


def test_a_selection_without_a_parent_is_an_orphan() -> None:
    assert from_selection(array(-1, 0, 1), array(0, 4), 2).tolist() == [-1, 0, -1]
    assert from_selection(array(-1, 0), array(0, 9), 2).tolist() == [-1, 0, -1]


def test_a_selection_of_one_level_names_no_parents() -> None:
    assert from_selection(array(), array(0, 1, 2), 4).tolist() == [-1, 0, 0, 0]


def test_a_mask() -> None:
    rows = ["10000", "11000", "10100", "11010", "11011"]
    assert from_mask(np.array([[int(c) for c in row] for row in rows])).tolist() == [-1, 0, 0, 1, 3]


def test_links_with_a_cycle_end() -> None:
    assert from_links(array(1, 0, -1), array(-1, 1, -1)).tolist() == [-1, 0, -1]


def test_ngrams_filler_is_no_node_but_for_the_first() -> None:
    """Rows 2 and 3 are token 0 below the root: row 3 repeats row 2, and no walk can reach it."""
    mask = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1], np.uint8)
    raw = worked_raw(
        0,
        draft_token=ints(5, 9, 0, 0),
        next_token=ints(1, -1, -1, -1)[None],
        next_sibling=ints(-1, 2, 3, -1)[None],
    )
    raw = replace(raw, tree=Tree("ngram", mask=mask))
    step = assemble(raw, Origin())
    assert step.requests[0].tree.parents.tolist() == [-1, 0, 0]
    assert step.links.retrieve_next_sibling[0][:3].tolist() == [-1, 2, -1]


def test_a_step_without_any_tree_is_refused() -> None:
    raw = worked_raw(0, without="next_token")
    with pytest.raises(ValueError, match="expected a tree, a mask or links, found none"):
        assemble(raw, Origin())

"""The rows of a step against the oracle's masks and positions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.layout import built_mask
from engine.oracle import Oracle
from engine.sglang.ddtree.faults import Fault
from engine.sglang.ddtree.rows import VerifyRows, flat_mask, tree_cells, verify_rows
from engine.step import VerifyStep
from engine.tree import DraftTree, make_tree
from tests.factories import clean_step, trees
from tests.sglang.ddtree.tensors import tensors


def rows_of(
    batch: list[DraftTree], prefixes: list[int], budget: int, fault: Fault | None = None
) -> VerifyRows:
    return verify_rows(tensors(batch, budget), torch.tensor(prefixes), fault)


def with_mask(step: VerifyStep, rows: VerifyRows, prefixes: list[int]) -> list[np.ndarray]:
    """The buffer decoded as the check decodes it."""
    from dataclasses import replace

    mask = rows.custom_mask(sum(prefixes)).to(torch.uint8).numpy()
    step = replace(step, inputs=replace(step.inputs, custom_mask=mask))
    geometry = Oracle(step).geometry
    return [built_mask(step, geometry, i).cells for i in range(len(step.requests))]


def test_literal() -> None:
    """Prefix 2, nodes 0 … 3 with parents -1, 0, 0, 2, and one row of padding."""
    rows = rows_of([make_tree([-1, 0, 0, 2], [5, 9, 12, 30])], [2], budget=4)
    assert rows.draft_token.tolist() == [5, 9, 12, 30, 0]
    assert rows.positions.tolist() == [2, 3, 3, 4, 2]
    assert rows.custom_mask(2).dtype is torch.bool
    assert rows.custom_mask(2).view(5, 7).int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 0, 1],
    ]


@given(st.lists(trees(), min_size=1, max_size=4), st.data())
def test_masks_positions_and_tokens_are_the_oracles(
    batch: list[DraftTree], data: st.DataObject
) -> None:
    budget = max(tree.num_nodes for tree in batch) - 1 + data.draw(st.integers(0, 4))
    prefixes = [data.draw(st.integers(0, 12)) for _ in batch]
    step = clean_step(batch, prefixes, budget=budget)
    rows, oracle = rows_of(batch, prefixes, budget), Oracle(step)
    assert len(rows.custom_mask(sum(prefixes))) == int(oracle.geometry.mask_indptr[-1])
    for i, (tree, cells) in enumerate(zip(batch, with_mask(step, rows, prefixes), strict=True)):
        assert np.array_equal(cells, oracle.intended(i).cells)
        own = slice(i * (budget + 1), i * (budget + 1) + tree.num_nodes)
        assert rows.positions[own].tolist() == oracle.positions(i).tolist()
        assert rows.draft_token[own].tolist() == tree.tokens.tolist()


@given(st.lists(trees(), min_size=1, max_size=3), st.integers(1, 4))
def test_padding_is_seen_by_nobody_and_sees_itself(batch: list[DraftTree], spare: int) -> None:
    budget = max(tree.num_nodes for tree in batch) - 1 + spare
    rows = rows_of(batch, [3] * len(batch), budget)
    cells = rows.custom_mask(3 * len(batch)).view(len(batch), budget + 1, -1)[:, :, 3:]
    for tree, block in zip(batch, cells, strict=True):
        assert not block[: tree.num_nodes, tree.num_nodes :].any()
        assert torch.equal(block[tree.num_nodes :], torch.eye(budget + 1).bool()[tree.num_nodes :])


def test_cells_of_two_requests() -> None:
    cells = tree_cells(torch.tensor([2, 0]), 2)
    assert cells.tolist() == [[[2, 3], [6, 7]], [[8, 9], [10, 11]]]


def test_a_buffer_that_is_too_short_is_refused() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        flat_mask(torch.ones(1, 2, 2, dtype=torch.bool), tree_cells(torch.tensor([3]), 2), 9)


FORKS = [make_tree([-1, 0, 0], [1, 2, 3]), make_tree([-1, 0, 1], [1, 2, 3])]


@pytest.mark.parametrize("fault", [Fault.FIRST_REQUESTS_TREE, Fault.CAUSAL_MASK])
def test_a_broken_mask_is_not_the_oracles(fault: Fault) -> None:
    step = clean_step(FORKS, [2, 5], budget=3)
    masks = with_mask(step, rows_of(FORKS, [2, 5], 3, fault), [2, 5])
    intended = [Oracle(step).intended(i).cells for i in range(2)]
    assert not all(np.array_equal(a, b) for a, b in zip(masks, intended, strict=True))


def test_flattened_positions_count_rows() -> None:
    rows = rows_of(FORKS[:1], [4], 2, Fault.FLATTENED_POSITIONS)
    assert rows.positions.tolist() == [4, 5, 6]

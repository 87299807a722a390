"""Three independent derivations of the mask agree: the engine's builder, the oracle, and a literal."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.layout import UNREAD, Geometry, addressed_mask, built_mask
from engine.oracle import Oracle
from engine.step import Config, VerifyStep
from engine.tree import chain
from tests.factories import clean_step, clean_steps, example_step, ints


def test_extents_of_two_requests() -> None:
    geometry = Geometry(ints(5, 7), ints(4, 4))
    assert geometry.qo_indptr.tolist() == [0, 4, 8]
    assert geometry.mask_indptr.tolist() == [0, 36, 80]
    assert geometry.byte_of(1, 2, 3) == 36 + 2 * 11 + 3


def test_extents_of_packed_query_only_bits() -> None:
    geometry = Geometry(ints(5, 7), ints(3, 3), qlen_only=True, bits=True)
    assert geometry.mask_indptr.tolist() == [0, 9, 18]
    assert geometry.byte_indptr.tolist() == [0, 2, 4]
    assert geometry.byte_of(1, 2, 7 + 2) == 2 + 1
    assert geometry.byte_of(1, 2, 3) is None


def test_the_worked_example() -> None:
    step = example_step()
    oracle = Oracle(step)
    assert oracle.intended(0).cells.astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 0, 1, 1],
    ]
    assert oracle.positions(0).tolist() == [2, 3, 3, 4]
    assert [array.tolist() for array in oracle.links(0)] == [[1, -1, 3, -1], [-1, 2, -1, -1]]
    assert step.outcome.target_predict is not None
    assert oracle.accepted_nodes(0, step.outcome.target_predict) == [0, 2, 3]


@given(clean_steps())
def test_built_addressed_and_intended_agree_on_clean_steps(step: VerifyStep) -> None:
    oracle = Oracle(step)
    for i in range(step.raw_bs):
        nodes = oracle.trees[i].num_nodes
        intended = oracle.intended(i)
        built = built_mask(step, oracle.geometry, i)
        addressed = addressed_mask(step, oracle.geometry, i, reads_prefix=True)
        assert np.array_equal(built.cells[:nodes], intended.cells[:nodes])
        assert np.array_equal(addressed.cells, built.cells)
        assert np.array_equal(addressed.bytes, built.bytes)
        assert np.array_equal(addressed.bytes, intended.bytes)
        assert not addressed.foreign_rows


@given(clean_steps(), st.booleans(), st.booleans())
def test_every_layout_and_encoding_decodes_to_the_same_mask(
    step: VerifyStep, qlen_only: bool, bits: bool
) -> None:
    again = relaid(step, qlen_only=qlen_only, bits=bits)
    for i in range(step.raw_bs):
        first, second = (built_mask(s, Oracle(s).geometry, i).cells for s in (step, again))
        assert np.array_equal(first, second)
        addressed = addressed_mask(again, Oracle(again).geometry, i, reads_prefix=True)
        assert np.array_equal(addressed.cells, second)


def relaid(step: VerifyStep, *, qlen_only: bool, bits: bool) -> VerifyStep:
    """The same masks in another layout, packed by hand."""
    oracle = Oracle(step)
    blocks = []
    for i in range(step.captured_bs):
        prefix = int(oracle.prefix_lens[i])
        cells = built_mask(step, oracle.geometry, i).cells
        blocks.append((cells[:, prefix:] if qlen_only else cells).astype(np.uint8).ravel())
    packed = [np.packbits(block, bitorder="little") if bits else block for block in blocks]
    sizes = np.cumsum([0] + [len(block) for block in blocks])
    ends = np.cumsum([0] + [len(block) for block in packed])
    return replace(
        step,
        config=replace(
            step.config,
            mask_layout="qlen" if qlen_only else "full",
            mask_encoding="bits" if bits else "bytes",
        ),
        inputs=replace(
            step.inputs,
            custom_mask=np.concatenate(packed),
            mask_indptr=sizes.astype(np.int64),
            byte_indptr=ends.astype(np.int64) if bits else None,
        ),
    )


@given(clean_steps(), st.integers(1, 10))
def test_a_sliding_window_hides_by_position(step: VerifyStep, window: int) -> None:
    step = replace(step, config=replace(step.config, sliding_window=window))
    oracle = Oracle(step)
    for i in range(step.raw_bs):
        tree, prefix = oracle.trees[i], int(oracle.prefix_lens[i])
        for node in range(tree.num_nodes):
            where = [*range(prefix), *(prefix + tree.depths)]
            ancestors = {prefix + other for other in tree.paths[node]}
            here = prefix + int(tree.depths[node])
            for column in range(prefix + tree.num_nodes):
                allowed = column < prefix or column in ancestors
                expected = allowed and here - where[column] < window
                assert oracle.intended(i).cells[node, column] == expected


def width_8_for_17_rows() -> VerifyStep:
    """A chain of 8 real nodes in 17 rows behind a prefix of 5, laid out with width 8."""
    step = clean_step([chain(list(range(1, 9)))], [5], budget=16)
    return replace(
        step,
        config=replace(step.config, num_draft_tokens=8, block_size=8),
        inputs=replace(
            step.inputs, qo_indptr=ints(0, 8), mask_indptr=ints(0, 104), max_extend_len=8
        ),
    )


def test_the_wrong_width_reads_shifted_cells_and_leaves_rows_unwritten() -> None:
    step = width_8_for_17_rows()
    view = addressed_mask(step, Oracle(step).geometry, 0, reads_prefix=False)
    tree = view.cells[:, 5:]
    assert tree[0].tolist()[:8] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert tree[1].tolist()[:8] == [0, 0, 0, 0, 1, 1, 1, 1]  # cells 18 … 25; its own begins at 27
    assert view.bytes[1, 5] == 1 * 13 + 5
    assert (view.cells[8:] == UNREAD).all()
    assert (
        built_mask(step, Oracle(step).geometry, 0).cells == Oracle(step).intended(0).cells
    ).all()


def test_rows_of_another_requests_program_are_named() -> None:
    trees = [chain([1, 2, 3, 4]), chain([1, 2, 3, 4])]
    step = clean_step(trees, [5, 7], budget=3)
    step = replace(step, inputs=replace(step.inputs, qo_indptr=ints(0, 3, 6)))
    views = [addressed_mask(step, Oracle(step).geometry, i, reads_prefix=False) for i in (0, 1)]
    assert views[0].foreign_rows == (3,)
    assert (views[0].cells[3, :5] == 0).all()  # it attends to the other request's prefix
    assert views[1].foreign_rows == ()
    assert (views[1].cells[2:] == UNREAD).all()


def test_cells_past_the_end_of_the_buffer_are_unread() -> None:
    step = example_step()
    assert step.inputs.custom_mask is not None
    step = replace(step, inputs=replace(step.inputs, custom_mask=step.inputs.custom_mask[:20]))
    cells = built_mask(step, Oracle(step).geometry, 0).cells
    assert (cells.ravel()[20:] == UNREAD).all()
    assert (cells.ravel()[:20] >= 0).all()


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (Config(budget=6), 7),
        (Config(budget=6, verify_rows="static"), 7),
        (Config(budget=6, verify_rows="ragged"), 4),
        (Config(), 4),
    ],
)
def test_rows_are_static_or_ragged(config: Config, rows: int) -> None:
    assert Oracle(replace(example_step(), config=config)).q_lens.tolist() == [rows]

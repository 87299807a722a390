"""Every clean relayout of a recording stays clean under all checks, and says what it changed."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from engine.checks.registry import check_trace
from engine.faults.recorded.edit import ints, need, with_inputs, with_outcome
from engine.faults.recorded.kv_layouts import paged, with_draft
from engine.faults.recorded.leaves import with_token_zero
from engine.faults.recorded.long_context import at_long_context
from engine.faults.recorded.masks import as_bits, blocks, tree_columns_only, windowed
from engine.faults.recorded.numbering import depth_first, first_rows, renumbered
from engine.faults.recorded.states import (
    on_ranks,
    with_recurrent_state,
    with_stop,
    without_predictions,
)
from engine.step import VerifyStep
from tests.faults.recordings import CASES, EAGER, REPLAY, Case, recording

Relayout = Callable[[Sequence[VerifyStep]], list[VerifyStep]]
RELAYOUTS: dict[str, Relayout] = {
    "bits": as_bits,
    "tree-columns": tree_columns_only,
    "bits-of-tree-columns": lambda steps: as_bits(tree_columns_only(steps)),
    "window-6": lambda steps: windowed(steps, 6),
    "window-1": lambda steps: windowed(steps, 1),
    "draft-counted": with_draft,
    "pages-of-4": lambda steps: paged(steps, 4),
    "pages-of-1": lambda steps: paged(steps, 1),
    "recurrent": with_recurrent_state,
    "two-ranks": lambda steps: on_ranks(steps, 2),
    "stop": with_stop,
    "without-predictions": without_predictions,
    "token-zero": with_token_zero,
    "long-context": at_long_context,
    "depth-first": lambda steps: [renumbered(step, depth_first) for step in steps],
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recordings_are_clean(case: Case) -> None:
    assert check_trace(recording(case)).findings == ()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", RELAYOUTS)
def test_relayouts_are_clean(name: str, case: Case) -> None:
    assert check_trace(RELAYOUTS[name](recording(case))).findings == ()


BATCH, ONE = Case("bushy", 3, REPLAY), Case("bushy", 1, EAGER)


def test_bits_hold_the_same_cells() -> None:
    for step, packed in zip(recording(BATCH), as_bits(recording(BATCH)), strict=True):
        pairs = zip(blocks(step), blocks(packed), strict=True)
        assert all(np.array_equal(cells, again) for cells, again in pairs)
        assert len(need(packed.inputs.custom_mask, "")) < len(need(step.inputs.custom_mask, "")) / 7


def test_a_window_hides_what_lies_before_it() -> None:
    step, narrow = recording(ONE)[0], windowed(recording(ONE), 1)[0]
    prefix_len = step.requests[0].prefix_len
    assert (blocks(narrow)[0].sum(axis=1) == 1).all()
    assert blocks(step)[0][:, :prefix_len].all()


def test_pages_name_the_slots_that_rows_write_to() -> None:
    step = paged(recording(BATCH), 4)[1]
    prefix_slots = step.requests[2].prefix_slots
    assert prefix_slots is not None
    first = step.inputs.kv_indices[step.inputs.kv_indptr[2]]
    assert prefix_slots.tolist() == list(range(first * 4, first * 4 + len(prefix_slots)))
    assert step.inputs.out_cache_loc[22] == prefix_slots[-1] + 1


def test_ranks_come_one_after_the_other_within_a_step() -> None:
    ranks = [(step.step, step.rank) for step in on_ranks(recording(ONE), 3)]
    assert ranks == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("relayout", "steps", "message"),
    [
        (as_bits, as_bits(recording(ONE)), "config.mask_encoding: expected bytes, found bits"),
        (
            tree_columns_only,
            windowed(recording(ONE), 6),
            "config.sliding_window: expected none, found 6",
        ),
        (
            lambda steps: on_ranks(steps, 2),
            on_ranks(recording(ONE), 2),
            "world_size: expected steps of one rank, found 2",
        ),
        (
            lambda steps: on_ranks(steps, 1),
            recording(ONE),
            "world_size: expected at least 2, found 1",
        ),
        (
            lambda steps: windowed(steps, 6),
            tree_columns_only(recording(ONE)),
            "config.mask_layout: expected full, found qlen",
        ),
        (
            with_draft,
            with_draft(recording(ONE)),
            "config.kv_indptr_counts_draft: expected False, found True",
        ),
        (
            lambda steps: paged(steps, 4),
            paged(recording(ONE), 4),
            "config.kv_indptr_unit: expected token, found page",
        ),
        (
            with_draft,
            [with_inputs(recording(ONE)[0], kv_indices=None)],
            "inputs.kv_indices: expected a recorded value, found null",
        ),
    ],
)
def test_relayouts_say_what_they_lack(
    relayout: Relayout, steps: list[VerifyStep], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        relayout(steps)


def test_a_stop_needs_two_tokens_of_one_step() -> None:
    bonus_alone = [with_outcome(step, emitted=(ints([1]),)) for step in recording(ONE)]
    with pytest.raises(ValueError, match="expected a step that emits two tokens, found none"):
        with_stop(bonus_alone)


@pytest.mark.parametrize("relayout", [with_draft, lambda steps: paged(steps, 4)])
def test_fewer_rows_stay_clean_where_draft_rows_are_counted(relayout: Relayout) -> None:
    step = relayout(recording(Case("mixed", 3, EAGER)))[0]
    assert check_trace([first_rows(step, 8)]).findings == ()


def test_fewer_rows_stay_clean() -> None:
    step = recording(Case("mixed", 3, EAGER))[0]
    assert len(step.requests[0].tree.parents) == 7
    assert check_trace([first_rows(step, 8)]).findings == ()

"""I6: offsets that do not fit, buffers that are too small, positions past the rotary table."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import CHAIN, batch, causes, clean, findings, only, short, spoil
from tests.factories import ints

FULL = batch(full=True)  # 30 rows; 30 * (100 + 10) = 3300 cells at a context of 100
CAPACITY = "config.mask_capacity"
LONG = 30_000_000  # committed tokens: 10 rows of them need more than 2**31 cells in eight requests


def long_batch(*changes: tuple[str, Any]) -> VerifyStep:
    """Eight requests whose true offsets pass 2**31; no mask is recorded."""
    step = clean([CHAIN] * 8, [2] * 8, [[0]] * 8, budget=9)
    step = spoil(
        step,
        ("inputs.custom_mask", None),
        ("inputs.mask_indptr", None),
        ("inputs.positions", None),
        ("inputs.kv_indices", None),
        ("inputs.kv_indptr", None),
        ("inputs.seq_lens", None),
        ("commit.seq_lens", None),
        *((f"requests.{n}.prefix_len", LONG) for n in range(8)),
    )
    return spoil(step, *changes)


TRUE = [n * 10 * (LONG + 10) for n in range(9)]
WRAPPED = ints(*((n + 2**31) % 2**32 - 2**31 for n in TRUE))
WHERE = (None, None, None, None)
STEP = (
    ("offset-overflow", long_batch(("config.index_dtype", "int32")), (TRUE[8], TRUE[8] - 2**32, 1)),
    (
        "offset-overflow",
        spoil(FULL, ("config.index_dtype", "int8"), ("inputs.mask_indptr", ints(0, 120, 14, -112))),
        (270, 14, 2),
    ),
    ("buffer-without-draft-columns", spoil(FULL, (CAPACITY, 3000)), (3300, 3000, 300)),
    ("capacity", spoil(FULL, (CAPACITY, 3299)), (3300, 3299, 1)),
    ("capacity", spoil(FULL, (CAPACITY, 399), ("config.max_context", None)), (400, 399, 1)),
    (
        "capacity",
        spoil(batch(full=True, encoding="bits"), (CAPACITY, 413)),
        (3300, 413, 2887),
    ),
)


@pytest.mark.parametrize(("diagnosis", "step", "numbers"), STEP)
def test_step(diagnosis: str, step: VerifyStep, numbers: tuple[int, ...]) -> None:
    assert short(only(step)) == ("I6", diagnosis, "crash", "fault", None, *WHERE, *numbers)


def test_wrapped_offsets_are_no_extents_fault() -> None:
    """They are the true ones as 32-bit integers hold them, whatever the record says of the integers."""
    for kind in ("int32", "int64", None):
        step = long_batch(("config.index_dtype", kind), ("inputs.mask_indptr", WRAPPED))
        assert [(f.check, f.diagnosis) for f in findings(step)] == [("I6", "offset-overflow")]


def test_other_wrong_offsets_stay_extents() -> None:
    offsets = WRAPPED.copy()
    offsets[3] += 1
    step = long_batch(("config.index_dtype", "int32"), ("inputs.mask_indptr", offsets))
    assert [f.check for f in causes(step)] == ["I4", "I6"]


def test_the_buffer_of_tree_columns_alone_needs_no_context() -> None:
    assert findings(spoil(batch(full=True, layout="qlen"), (CAPACITY, 300))) == []
    finding = only(spoil(batch(full=True, layout="qlen"), (CAPACITY, 299)))
    assert (finding.diagnosis, finding.expected) == ("capacity", 300)


def test_captured_size_counts() -> None:
    finding = only(spoil(batch(full=True, padded=1), (CAPACITY, 3300)))
    assert (finding.diagnosis, finding.expected, finding.found) == ("capacity", 4400, 3300)


TABLE = "config.max_position"


def test_rope_table() -> None:
    """The second request's deepest nodes 7, 8 (depth 3) and 9 (depth 3) stand at 5 + 3."""
    assert short(only(spoil(FULL, (TABLE, 8)))) == (
        *("I6", "rope-table", "crash", "fault", "r1"),
        *(7, 17, None, None, "0 … 7", 8, 3),
    )


def test_rope_table_and_padding_rows() -> None:
    step = spoil(FULL, ("inputs.positions.8", 200))
    assert short(only(step)) == (
        *("I6", "rope-table", "crash", "fault", "r0"),
        *(None, 8, None, None, "0 … 199", 200, 1),
    )


def test_two_requests_and_a_buffer() -> None:
    step = spoil(FULL, (TABLE, 7), (CAPACITY, 1))
    assert [(f.request, f.diagnosis) for f in causes(step)] == [
        (None, "capacity"),
        ("r0", "rope-table"),
        ("r1", "rope-table"),
        ("r2", "rope-table"),
    ]


def test_just_enough() -> None:
    assert findings(spoil(FULL, (TABLE, 9), (CAPACITY, 3300))) == []
    assert findings(spoil(FULL, ("config.index_dtype", "int16"))) == []

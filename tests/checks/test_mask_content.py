"""I8: the buffer itself, cell by cell, and what explains all of its wrong cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.step import VerifyStep
from tests.checks.build import (
    BUSHY,
    CHAIN,
    MIXED,
    ancestors,
    batch,
    causes,
    clean,
    findings,
    mask_of,
    only,
    rooted,
    short,
    spoil,
)

STARTS, STRIDES, PREFIXES = (0, 120, 270), (12, 15, 13), (2, 5, 3)


def cells(step: VerifyStep, request: int, *values: tuple[int, int, int]) -> VerifyStep:
    """The batch with ``(row, column, value)`` in one request's mask."""
    changes = [
        (f"inputs.custom_mask.{STARTS[request] + row * STRIDES[request] + column}", value)
        for row, column, value in values
    ]
    return spoil(step, *changes)


def block(step: VerifyStep, request: int, mask: np.ndarray) -> VerifyStep:
    """The batch with another mask for one request, [10, prefix + 10] or its tree columns [10, 10]."""
    buffer = step.inputs.custom_mask.copy()
    stride = STRIDES[request]
    view = buffer[STARTS[request] : STARTS[request] + 10 * stride].reshape(10, stride)
    view[:, stride - mask.shape[1] :] = mask
    return spoil(step, ("inputs.custom_mask", buffer))


def lower_triangle(prefix: int) -> np.ndarray:
    return np.tril(np.ones((10, prefix + 10), np.uint8), prefix)


def tree_columns(tree: Any) -> np.ndarray:
    return mask_of(tree, 0, 10, None)


def windowed_by_row(window: int) -> np.ndarray:
    """Ancestors and prefix, but near in rows, not in positions."""
    return np.array(
        [
            [
                (column < 5 or column - 5 in ancestors(BUSHY, row)) and 5 + row - column < window
                for column in range(15)
            ]
            for row in range(10)
        ],
        np.uint8,
    )


def fi(step: VerifyStep) -> VerifyStep:
    return spoil(step, ("source.attention_backend", "flashinfer"))


CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "causal": (
        block(batch(), 1, lower_triangle(5)),
        ("causal-mask", "r1", 2, 12, 6, 156, 0, 1, 27),
    ),
    "causal-with-windowed-prefix": (
        block(batch(window=2), 1, lower_triangle(0)),
        ("causal-mask", "r1", 2, 12, 6, 156, 0, 1, 36),
    ),
    "other-request": (
        block(batch(), 2, tree_columns(BUSHY)),
        ("request-broadcast", "r2", 2, 22, 4, 300, 1, 0, 8),
    ),
    "rows-in-window": (
        block(batch(window=2), 1, windowed_by_row(2)),
        ("window-by-index", "r1", 2, 12, 5, 155, 1, 0, 8),
    ),
    "padding": (
        cells(batch(), 2, (1, 10, 1), (3, 12, 1)),
        ("padding-leak", "r2", 1, 21, 10, 293, 0, 1, 2),
    ),
    "sibling": (
        cells(batch(), 1, (2, 6, 1), (8, 12, 1)),
        ("sibling-leak", "r1", 2, 12, 6, 156, 0, 1, 2),
    ),
    "descendant": (
        cells(batch(), 1, (1, 12, 1)),
        ("sibling-leak", "r1", 1, 11, 12, 147, 0, 1, 1),
    ),
    "prefix-hidden": (
        cells(fi(batch()), 1, (4, 3, 0), (6, 0, 0)),
        ("prefix-hidden", "r1", 4, 14, 3, 183, 1, 0, 2),
    ),
    "ancestor-hidden": (
        cells(batch(), 2, (6, 7, 0)),
        ("mask-cell", "r2", 6, 26, 7, 355, 1, 0, 1),
    ),
    "itself-hidden": (
        cells(batch(), 0, (5, 7, 0)),
        ("mask-cell", "r0", 5, 5, 7, 67, 1, 0, 1),
    ),
    "leak-and-hidden-prefix": (
        cells(batch(), 1, (2, 6, 1), (4, 3, 0)),
        ("mask-cell", "r1", 2, 12, 6, 156, 0, 1, 2),
    ),
    "leak-of-sibling-and-padding": (
        cells(batch(), 2, (2, 7, 1), (3, 12, 1)),
        ("mask-cell", "r2", 2, 22, 7, 303, 0, 1, 2),
    ),
    "ancestor-beyond-the-window": (
        cells(batch(window=2), 1, (7, 6, 1)),
        ("mask-cell", "r1", 7, 17, 6, 231, 0, 1, 1),
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, *rest = expected
    finding = only(step)
    assert short(finding) == ("I8", diagnosis, "output", "fault", *rest)
    assert len(finding.where.cells or ()) == min(finding.count, 64)
    assert (finding.where.cells or ())[0] == (finding.where.row, finding.where.column)


@pytest.mark.parametrize(
    ("backend", "deterministic", "verdict"),
    [
        ("triton", False, "latent"),
        ("Triton", False, "latent"),
        ("addressed", False, "latent"),
        ("triton", True, "fault"),
        ("flashinfer", False, "fault"),
        (None, False, "fault"),
    ],
)
def test_hidden_prefix_counts_where_it_is_read(
    backend: str | None, deterministic: bool, verdict: str
) -> None:
    step = spoil(
        cells(batch(), 1, (4, 3, 0)),
        ("source.attention_backend", backend),
        ("source.deterministic", deterministic),
    )
    (finding,) = findings(step)
    assert short(finding) == (
        *("I8", "prefix-hidden", "latent" if verdict == "latent" else "output", verdict, "r1"),
        *(4, 14, 3, 183, 1, 0, 1),
    )


def test_a_wrong_tree_cell_is_never_latent() -> None:
    assert only(cells(batch(), 1, (4, 3, 0), (4, 7, 1))).effect == "output"


def test_on_a_chain_a_causal_mask_changes_nothing() -> None:
    step = cells(batch(), 0, *[(r, 2 + c, int(c <= r)) for r in range(6) for c in range(10)])
    assert findings(step) == []


def test_what_padding_rows_see_does_not_matter() -> None:
    assert findings(cells(batch(), 0, (6, 3, 0), (9, 0, 0))) == []


def test_bits_and_tree_columns_only() -> None:
    """Third request: bytes from 13 + 13 on; node 2 (row 22) has tree column 1 at cell 21, byte 28, bit 5."""
    step = batch(encoding="bits", layout="qlen")
    assert step.inputs.byte_indptr.tolist() == [0, 13, 26, 39]
    byte = int(step.inputs.custom_mask[28])
    assert byte >> 5 & 1
    assert short(only(spoil(step, ("inputs.custom_mask.28", byte ^ 32)))) == (
        *("I8", "mask-cell", "output", "fault", "r2"),
        *(2, 22, 4, 28, 1, 0, 1),
    )


def second_step(**options: Any) -> VerifyStep:
    """The step after :func:`batch`: strides 15, 19, 16, starts 0, 150, 340."""
    paths = [[0, 1], [0, 2], [0, 4]]
    trees = [rooted(CHAIN, 92), rooted(BUSHY, 107), rooted(MIXED, 116)]
    return clean(trees, [5, 9, 6], paths, budget=9, number=1, **options)


def old_block(step: VerifyStep) -> VerifyStep:
    """The second request's committed columns 5 … 8 still hold the last step's tree."""
    buffer = step.inputs.custom_mask.copy()
    view = buffer[150:340].reshape(10, 19)
    view[:, 5:9] &= tree_columns(BUSHY)[:, :4]
    return spoil(step, ("inputs.custom_mask", buffer))


def test_old_tree_block_left_in_the_prefix() -> None:
    """19 of the 40 cells are visible: the root in all rows, node 1 in 5, node 2 in 3, node 3 in 1."""
    first = batch(backend="flashinfer")
    finding = only(first, old_block(second_step(backend="flashinfer")))
    assert short(finding) == (
        *("I8", "previous-tree-not-cleared", "output", "fault", "r1"),
        *(0, 10, 6, 156, 1, 0, 21),
    )
    assert finding.step == 1


def test_old_tree_block_under_triton_is_latent() -> None:
    (finding,) = findings(batch(), old_block(second_step()))
    assert (finding.verdict, finding.diagnosis) == ("latent", "previous-tree-not-cleared")


def test_old_tree_block_without_the_step_before_hides_the_prefix() -> None:
    step = old_block(second_step(backend="flashinfer"))
    assert only(step).diagnosis == "prefix-hidden"
    late = spoil(step, ("step", 2))
    assert only(batch(backend="flashinfer"), late).diagnosis == "prefix-hidden"
    renamed = spoil(step, ("requests.1.rid", "new"))
    assert only(batch(backend="flashinfer"), renamed).diagnosis == "prefix-hidden"


def test_buffer_not_refreshed() -> None:
    step = second_step()
    stale = step.inputs.custom_mask.copy()
    stale[:400] = batch().inputs.custom_mask
    found = causes(batch(), spoil(step, ("inputs.custom_mask", stale)))
    assert [(f.request, f.diagnosis, f.where.row) for f in found] == [
        ("r0", "previous-tree-not-cleared", 0),
        ("r1", "previous-tree-not-cleared", 10),
        ("r2", "previous-tree-not-cleared", 20),
    ]


def test_buffer_not_refreshed_says_nothing_of_a_new_request() -> None:
    step = second_step()
    stale = step.inputs.custom_mask.copy()
    stale[:400] = batch().inputs.custom_mask
    renamed = spoil(step, ("inputs.custom_mask", stale), ("requests.1.rid", "new"))
    found = {f.request: f.diagnosis for f in causes(batch(), renamed)}
    assert found["r0"] == found["r2"] == "previous-tree-not-cleared"
    assert found["new"] == "mask-cell"


def test_tree_columns_of_the_step_before() -> None:
    """Tree columns only: the buffer has the same shape in every step."""
    before = clean([BUSHY], [5], [[0, 1]], budget=9, layout="qlen")
    after = clean([rooted(MIXED, 91)], [7], [[0, 1]], budget=9, layout="qlen", number=1)
    new, old = tree_columns(MIXED), tree_columns(BUSHY)
    for buffer in (old, old | new):
        mask = new.copy()
        mask[:7] = buffer[:7]
        finding = only(before, spoil(after, ("inputs.custom_mask", mask.flatten())))
        assert finding.diagnosis == "previous-tree-not-cleared"


def test_two_requests_are_two_causes() -> None:
    step = cells(cells(batch(), 1, (2, 6, 1)), 2, (6, 7, 0))
    assert [(f.request, f.diagnosis) for f in causes(step)] == [
        ("r1", "sibling-leak"),
        ("r2", "mask-cell"),
    ]


def test_cells_are_listed_up_to_64() -> None:
    empty = np.zeros((10, 15), np.uint8)
    finding = only(block(fi(batch()), 1, empty))
    assert finding.count == 10 * 5 + 28  # the prefix, and the nodes' root paths
    assert len(finding.where.cells or ()) == 64

"""I5: how the mask is packed, judged by what another decoding gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.step import VerifyStep
from tests.checks.build import (
    BUSHY,
    CHAIN,
    MIXED,
    batch,
    clean,
    findings,
    mask_of,
    only,
    short,
    spoil,
)
from tests.factories import ints

BUFFER = "inputs.custom_mask"
TREES = ((CHAIN, 2), (BUSHY, 5), (MIXED, 3))
BITS = batch(encoding="bits", full=True)  # bits 120, 150, 130; bytes 0, 15, 34, 51
BYTES = batch(full=True)


def masks(layout: str = "full") -> list[np.ndarray]:
    """Padding rows see nothing."""
    out = []
    for tree, prefix in TREES:
        mask = mask_of(tree, prefix, 10, None)
        mask[tree.num_nodes :] = 0
        out.append(mask if layout == "full" else mask[:, prefix:])
    return out


def big_endian(request: int | None = None) -> np.ndarray:
    orders = ["big" if request in (None, i) else "little" for i in range(3)]
    return np.concatenate(
        [np.packbits(m, bitorder=o) for m, o in zip(masks(), orders, strict=True)]
    )


def stream(order: str = "little") -> np.ndarray:
    return np.packbits(np.concatenate([m.flatten() for m in masks()]), bitorder=order)


def padded_rows(extra: int, layout: str = "full") -> np.ndarray:
    wide = [np.pad(m, ((0, 0), (0, extra))) for m in masks(layout)]
    return np.concatenate([m.flatten() for m in wide])


def last_padded(extra: int) -> np.ndarray:
    first, second, third = masks()
    return np.concatenate(
        [first.flatten(), second.flatten(), np.pad(third, ((0, 0), (0, extra))).flatten()]
    )


def row_bytes() -> np.ndarray:
    """Each row begins at a byte."""
    return np.concatenate([np.packbits(m, axis=1, bitorder="little").flatten() for m in masks()])


def put(step: VerifyStep, buffer: np.ndarray) -> VerifyStep:
    return spoil(step, (BUFFER, buffer.astype(np.uint8)))


# name: step, then one (diagnosis, request, row, column, byte, expected, found, count) a request
CASES: dict[str, tuple[VerifyStep, list[tuple[Any, ...]]]] = {
    "most-significant-first": (
        put(BITS, big_endian(1)),
        [("bit-order", "r1", 10, 0, 15, "little", "big", 76)],
    ),
    "one-stream": (
        put(BITS, stream()),
        [("request-not-byte-aligned", "r2", 20, 2, 34, 272, 270, 30)],
    ),
    "wide-rows-of-the-last-request": (
        put(BYTES, last_padded(3)),
        [("row-stride", "r2", 21, 0, 283, 13, 16, 44)],
    ),
    "a-byte-a-cell": (
        put(batch(encoding="bits", full=True), np.concatenate([m.flatten() for m in masks()])),
        [
            ("packing", "r0", 0, 1, 0, "bits, least significant first", "one byte a cell", None),
            ("packing", "r1", 10, 1, 15, "bits, least significant first", "one byte a cell", None),
            ("packing", "r2", 20, 0, 34, "bits, least significant first", "one byte a cell", None),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, expected = CASES[name]
    found = findings(step)
    mine = [f for f in found if f.check == "I5"]
    assert [(f.diagnosis, f.request, f.expected, f.found) for f in mine] == [
        (diagnosis, request, want, have) for diagnosis, request, *_, want, have, _ in expected
    ]
    for finding, (_, _, row, column, byte, *_, count) in zip(mine, expected, strict=True):
        where = finding.where
        assert (where.row, where.column, where.byte) == (row, column, byte)
        assert finding.effect == "output"
        assert count is None or finding.count == count
    follows = [(f.check, f.consequence_of) for f in found if f.check != "I5"]
    assert set(follows) == {("I8", "I5")}
    assert len(follows) == len(mine)


def test_every_request_most_significant_first() -> None:
    found = findings(put(BITS, big_endian()))
    assert [(f.check, f.request, f.diagnosis) for f in found if f.consequence_of is None] == [
        ("I5", f"r{n}", "bit-order") for n in range(3)
    ]


@pytest.mark.parametrize("layout", ["full", "qlen"])
@pytest.mark.parametrize("extra", [1, 3, 22])
def test_rows_padded_in_every_request(layout: str, extra: int) -> None:
    step = put(batch(layout=layout, full=True), padded_rows(extra, layout))
    roots = [f for f in findings(step) if f.consequence_of is None]
    strides = [12, 15, 13] if layout == "full" else [10, 10, 10]
    assert [(f.check, f.diagnosis, f.expected, f.found) for f in roots] == [
        ("I5", "row-stride", stride, stride + extra) for stride in strides
    ]


def test_rows_that_begin_at_bytes() -> None:
    roots = [f for f in findings(put(BITS, row_bytes())) if f.consequence_of is None]
    assert [(f.check, f.diagnosis, f.expected, f.found) for f in roots] == [
        ("I5", "row-stride", stride, 16) for stride in (12, 15, 13)
    ]


def test_rows_without_the_padding_columns() -> None:
    """The builder laid out one column a node, 7 instead of 10; the buffer is shorter, which I4 leaves to I5."""
    step = clean([MIXED], [3], [[0, 4, 6]], budget=9, full=True)
    narrow = mask_of(MIXED, 3, 7, None)
    finding = only(put(step, narrow.flatten()))
    assert (finding.check, finding.diagnosis) == ("I5", "row-stride")
    assert (finding.expected, finding.found) == (13, 10)


def test_one_stream_is_shorter_and_still_no_bare_extent() -> None:
    """42 + 42 bits are 11 bytes; two requests that begin at bytes have 6 + 6."""
    step = clean([CHAIN, CHAIN], [1, 1], [[0], [0]], budget=5, full=True, encoding="bits")
    cells = [mask_of(CHAIN, 1, 6, None).flatten()] * 2
    packed = np.packbits(np.concatenate(cells), bitorder="little")
    assert (len(packed), len(step.inputs.custom_mask)) == (11, 12)
    finding = only(put(step, packed))
    assert (finding.check, finding.diagnosis, finding.request) == (
        *("I5", "request-not-byte-aligned", "r1"),
    )
    assert (finding.expected, finding.found) == (48, 42)


@pytest.mark.parametrize("order", ["little", "big"])
def test_bits_where_bytes_are_promised(order: str) -> None:
    packed = np.concatenate([np.packbits(m, bitorder=order) for m in masks()])
    found = findings(put(BYTES, packed))
    assert found[0].check in ("I4", "I5")
    mine = [f for f in found if f.check == "I5"]
    assert {f.diagnosis for f in mine} == {"packing"}
    assert [f.check for f in found if f.consequence_of is None] == ["I5"] * 3


def test_most_significant_first_in_one_stream() -> None:
    found = [f for f in findings(put(BITS, stream("big"))) if f.consequence_of is None]
    assert {(f.check, f.diagnosis) for f in found} <= {("I5", "packing"), ("I5", "bit-order")}
    assert [f.request for f in found] == ["r0", "r1", "r2"]


EXTENT = "inputs.byte_indptr"


def test_byte_extent() -> None:
    step = spoil(BITS, (f"{EXTENT}.1", 16))
    assert short(only(step)) == (
        *("I5", "byte-extent", "output", "fault", None),
        *(None, None, None, 15, 15, 16, 1),
    )


def test_byte_extents_in_bits() -> None:
    finding = only(spoil(BITS, (EXTENT, ints(0, 120, 270, 400))))
    assert (finding.diagnosis, finding.expected, finding.found, finding.count) == (
        *("byte-extent", 15, 120, 3),
    )
    assert finding.message == ("byte_indptr[1] is 120, should be 15 (the offsets are in bits)")


def test_a_mask_packed_at_the_wrong_extents_follows_from_them() -> None:
    packed = [np.packbits(m, bitorder="little") for m in masks()]
    buffer = np.concatenate([packed[0], [0], packed[1], packed[2]])
    step = put(spoil(BITS, (EXTENT, ints(0, 16, 35, 52))), buffer)
    found = findings(step)
    assert (found[0].check, found[0].diagnosis) == ("I5", "byte-extent")
    assert {f.consequence_of for f in found[1:]} == {"I5"}


def test_a_byte_that_is_no_cell() -> None:
    step = spoil(BYTES, (f"{BUFFER}.135", 255))  # the second row of the second request, column 0
    assert short(only(step)) == (
        *("I5", "packing", "output", "fault", "r1"),
        *(1, 11, 0, 135, "0 or 1", 255, 1),
    )


def test_padding_rows_may_hold_any_byte() -> None:
    assert findings(spoil(BYTES, (f"{BUFFER}.119", 255))) == []


def test_a_single_cell_is_no_stride() -> None:
    """Two nodes: another stride would explain the cell, and so would chance."""
    tree = CHAIN
    step = clean([tree], [2], [[0]], budget=5, layout="qlen", full=True)
    at = 6  # row 1, node 0
    assert findings(spoil(step, (f"{BUFFER}.{at}", 0)))[0].check == "I8"


def test_a_mask_read_as_it_was_built_is_the_extents_fault() -> None:
    """Rows and offsets of width 8 throughout: nothing is packed in another way than it is read."""
    from tests.checks.test_mask_extents import CASES as EXTENTS

    for step, *_ in EXTENTS.values():
        assert "I5" not in [f.check for f in findings(step)]

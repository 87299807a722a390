"""Triton source: arrays that lie anywhere on the device into one block of the host's memory; see :mod:`.snapshot`."""
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl


def gather_arrays(block, header, CHUNK: tl.constexpr):
    """One program an entry and chunk. An entry is six int64 at the block's start: address, bytes of a row, place in the
    block, bytes from a row to the next, address of int64 row numbers or 0, rows.
    """
    entry = block.to(tl.pointer_type(tl.int64)) + 6 * tl.program_id(0)
    source = tl.load(entry)
    size = tl.load(entry + 1)
    place = tl.load(entry + 2)
    stride = tl.load(entry + 3)
    numbers = tl.load(entry + 4)
    total = size * tl.load(entry + 5)
    first = tl.program_id(1).to(tl.int64) * CHUNK
    if first < total:
        at = first + tl.arange(0, CHUNK)
        inside = at < total
        row = at // size
        number = tl.zeros([CHUNK], tl.int64)
        if numbers != 0:
            number = tl.load(
                (numbers + 8 * row).to(tl.pointer_type(tl.int64)), mask=inside, other=0
            )
        address = source + number * stride + (at - row * size)
        cells = tl.load(address.to(tl.pointer_type(tl.uint8)), mask=inside, other=0)
        tl.store(block + header + place + at, cells, mask=inside)

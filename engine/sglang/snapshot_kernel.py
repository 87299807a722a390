"""Triton source: arrays that lie anywhere on the device into one block of the host's memory; see :mod:`.snapshot`."""
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl


def gather_arrays(block, ENTRIES: tl.constexpr, CHUNK: tl.constexpr):
    """``CHUNK`` bytes of one entry a program.

    The block starts with int32 [ENTRIES], the first program of each entry. Seven int64 an entry follow: address, bytes
    of a row, place in the block, bytes from a row to the next, address of int64 row numbers or 0, rows, and the bytes
    that are moved at once, 4 or 1. Places count from behind the last entry.
    """
    program = tl.program_id(0)
    each = tl.arange(0, ENTRIES)
    starts = tl.load(block.to(tl.pointer_type(tl.int32)) + each)
    own = tl.sum((starts <= program).to(tl.int32), 0) - 1
    begun = tl.max(tl.where(starts <= program, starts, 0), 0)
    entry = (block + 4 * ENTRIES).to(tl.pointer_type(tl.int64)) + 7 * own
    source = tl.load(entry)
    size = tl.load(entry + 1)
    target = block + 60 * ENTRIES + tl.load(entry + 2)
    stride = tl.load(entry + 3)
    numbers = tl.load(entry + 4)
    total = size * tl.load(entry + 5)
    first = (program - begun).to(tl.int64) * CHUNK
    if tl.load(entry + 6) == 4:
        word_at = first + 4 * tl.arange(0, CHUNK // 4)
        word_inside = word_at < total
        word_row = word_at // size
        word_number = tl.zeros([CHUNK // 4], tl.int64)
        if numbers != 0:
            word_number = tl.load(
                (numbers + 8 * word_row).to(tl.pointer_type(tl.int64)), mask=word_inside, other=0
            )
        word_from = source + word_number * stride + (word_at - word_row * size)
        words = tl.load(word_from.to(tl.pointer_type(tl.int32)), mask=word_inside, other=0)
        tl.store((target + word_at).to(tl.pointer_type(tl.int32)), words, mask=word_inside)
    else:
        byte_at = first + tl.arange(0, CHUNK)
        byte_inside = byte_at < total
        byte_row = byte_at // size
        byte_number = tl.zeros([CHUNK], tl.int64)
        if numbers != 0:
            byte_number = tl.load(
                (numbers + 8 * byte_row).to(tl.pointer_type(tl.int64)), mask=byte_inside, other=0
            )
        byte_from = source + byte_number * stride + (byte_at - byte_row * size)
        cells = tl.load(byte_from.to(tl.pointer_type(tl.uint8)), mask=byte_inside, other=0)
        tl.store((target + byte_at).to(tl.pointer_type(tl.uint8)), cells, mask=byte_inside)

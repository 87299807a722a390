"""Triton kernels that lay a captured batch out: offsets and slots from prefix lengths, rows and mask from trees."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def lay_out_prefixes(  # type: ignore[no-untyped-def]
    seq_lens,
    request_rows,
    req_to_token,
    kv_indptr,
    mask_indptr,
    kv_indices,
    captured,
    table_width,
    Q_LEN: tl.constexpr,
    REQUESTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (captured, blocks of ``BLOCK`` tokens). ``REQUESTS``: a power of two, at least ``captured``."""
    request, block = tl.program_id(0), tl.program_id(1)
    other = tl.arange(0, REQUESTS)
    lens = tl.load(seq_lens + other, mask=other < captured, other=0)
    before = tl.where(other < request, lens, 0)
    start = tl.sum(before, 0)
    length = tl.load(seq_lens + request)
    token = block * BLOCK + tl.arange(0, BLOCK)
    there = token < length
    line = req_to_token + tl.load(request_rows + request) * table_width
    slot = tl.load(line + token, mask=there, other=0)
    tl.store(kv_indices + start + token, slot.to(tl.int64), mask=there)
    if block == 0:
        cells = Q_LEN * (start + Q_LEN * request)
        tl.store(kv_indptr + request, start.to(tl.int32))
        tl.store(mask_indptr + request, cells)
        if request == captured - 1:
            tl.store(kv_indptr + captured, (start + length).to(tl.int32))
            tl.store(mask_indptr + captured, cells + Q_LEN * (length + Q_LEN))


@triton.jit  # type: ignore[untyped-decorator]
def lay_out_rows(  # type: ignore[no-untyped-def]
    tokens,
    depths,
    visible,
    seq_lens,
    request_rows,
    req_to_token,
    mask_indptr,
    raw_bs,
    input_ids,
    positions,
    out_cache_loc,
    custom_mask,
    table_width,
    Q_LEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (captured, Q_LEN): token, position, slot and mask of one row. A padded request's rows hold zeros."""
    request, node = tl.program_id(0), tl.program_id(1)
    row = request * Q_LEN + node
    length = tl.load(seq_lens + request)
    live = request < tl.load(raw_bs)
    slot = tl.load(req_to_token + tl.load(request_rows + request) * table_width + length + node)
    tl.store(input_ids + row, tl.where(live, tl.load(tokens + row), 0))
    tl.store(positions + row, tl.where(live, length + tl.load(depths + row), 0))
    tl.store(out_cache_loc + row, tl.where(live, slot.to(tl.int64), 0))
    cells = custom_mask + tl.load(mask_indptr + request) + node * (length + Q_LEN)
    seen = visible + row.to(tl.int64) * Q_LEN
    for start in range(0, length + Q_LEN, BLOCK):
        column = start + tl.arange(0, BLOCK)
        in_tree = (column >= length) & (column < length + Q_LEN)
        cell = tl.load(seen + column - length, mask=in_tree, other=1)
        tl.store(cells + column, cell.to(tl.uint8), mask=column < length + Q_LEN)

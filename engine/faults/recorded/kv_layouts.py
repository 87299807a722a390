"""Other clean layouts of the KV lengths and slots: draft rows counted, pages of several tokens. None is a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.faults.recorded.edit import (
    extents,
    need,
    need_plain,
    on_backend,
    rows_of,
    with_config,
    with_inputs,
    with_requests,
)
from engine.layout import indptr
from engine.step import Request, VerifyStep


def with_draft(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """``kv_indptr`` counts the draft rows and ``kv_indices`` lists their slots after the prefix's, as in FlashInfer.

    Raises ``ValueError`` for lengths that count them already, and for pages.
    """
    need_plain(steps, "kv_indptr_unit", "kv_indptr_counts_draft")
    return [_with_draft(step) for step in steps]


def _with_draft(step: VerifyStep) -> VerifyStep:
    starts = need(step.inputs.kv_indptr, "inputs.kv_indptr")
    listed = need(step.inputs.kv_indices, "inputs.kv_indices")
    written = need(step.inputs.out_cache_loc, "inputs.out_cache_loc")
    lines = [
        np.concatenate([listed[starts[i] : starts[i + 1]], written[rows_of(step, i)]])
        for i in range(step.captured_bs)
    ]
    changed = with_config(on_backend(step, "flashinfer"), kv_indptr_counts_draft=True)
    lengths = np.array([len(line) for line in lines])
    return with_inputs(changed, kv_indptr=indptr(lengths), kv_indices=np.concatenate(lines))


def paged(steps: Sequence[VerifyStep], page_size: int) -> list[VerifyStep]:
    """``kv_indices`` holds pages of ``page_size`` tokens, draft rows counted, and every request has pages of its own.

    Slots are numbered anew: position k of a request lies at k within its pages, in every step. Page 0 is padding.
    Raises ``ValueError`` for lengths that count draft rows or pages already.
    """
    need_plain(steps, "kv_indptr_unit", "kv_indptr_counts_draft")
    rids = list(dict.fromkeys(request.rid for step in steps for request in step.requests))
    tokens = [int((extents(step).prefix_lens + extents(step).q_lens).max()) for step in steps]
    room = -(-max(tokens, default=0) // page_size) * page_size
    first = {rid: (1 + number) * room for number, rid in enumerate(rids)}
    return [_paged(step, page_size, first, (1 + len(rids)) * room) for step in steps]


def _paged(step: VerifyStep, page_size: int, first: dict[str, int], pool_size: int) -> VerifyStep:
    geometry = extents(step)
    tokens = geometry.prefix_lens + geometry.q_lens
    pages = -(-tokens // page_size)
    written = need(step.inputs.out_cache_loc, "inputs.out_cache_loc").copy()
    listed = [np.zeros(count, np.int64) for count in pages.tolist()]
    for number, request in enumerate(step.requests):
        start, prefix_len = first[request.rid], int(geometry.prefix_lens[number])
        q_len = int(geometry.q_lens[number])
        written[rows_of(step, number)] = start + prefix_len + np.arange(q_len)
        listed[number] = start // page_size + np.arange(len(listed[number]))

    def moved(number: int, request: Request) -> Request:
        return replace(request, prefix_slots=first[request.rid] + np.arange(request.prefix_len))

    changed = with_config(
        on_backend(step, "flashinfer"),
        page_size=page_size,
        pool_size=pool_size,
        padding_slot=0,
        kv_indptr_unit="page",
        kv_indptr_counts_draft=True,
    )
    return with_inputs(
        with_requests(changed, moved),
        out_cache_loc=written,
        kv_indptr=indptr(pages),
        kv_indices=np.concatenate(listed),
        kv_last_page_len=(tokens - 1) % page_size + 1,
    )

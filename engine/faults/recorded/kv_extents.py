"""Faults of KV lengths that count draft rows or pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.faults.recorded.edit import after, every, extents, need, with_inputs
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.faults.recorded.kv_layouts import paged, with_draft
from engine.layout import indptr
from engine.step import Int64, VerifyStep

PAGE_SIZE = 4  # tokens


def _pages(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    return paged(steps, PAGE_SIZE)


def _in_pages(fault: Apply) -> Apply:
    return after(_pages, fault)


def _without_draft(step: VerifyStep) -> VerifyStep:
    """``kv_indptr`` from ``seq_lens``, which hold the prefix alone."""
    lengths = extents(step).prefix_lens
    return with_inputs(step, kv_indptr=indptr(lengths), kv_indices=_heads(step, lengths.tolist()))


def _heads(step: VerifyStep, counts: Sequence[int]) -> Int64:
    """The first entries of each request's ``kv_indices``, so many each."""
    starts = need(step.inputs.kv_indptr, "inputs.kv_indptr").tolist()
    listed = need(step.inputs.kv_indices, "inputs.kv_indices")
    return np.concatenate(
        [listed[start : start + count] for start, count in zip(starts, counts, strict=False)]
    )


def _last_page_dropped(step: VerifyStep) -> VerifyStep:
    """Whole pages only: tokens // page size."""
    geometry = extents(step)
    counts = (geometry.prefix_lens + geometry.q_lens) // PAGE_SIZE
    return with_inputs(step, kv_indptr=indptr(counts), kv_indices=_heads(step, counts.tolist()))


def _last_page_of_prefix(step: VerifyStep) -> VerifyStep:
    """Tokens in the last page of the prefix, although the pages go on over the draft rows."""
    return with_inputs(step, kv_last_page_len=(extents(step).prefix_lens - 1) % PAGE_SIZE + 1)


def _slots_for_pages(step: VerifyStep) -> VerifyStep:
    """The first slot of each page instead of its number."""
    return with_inputs(
        step, kv_indices=need(step.inputs.kv_indices, "inputs.kv_indices") * PAGE_SIZE
    )


INJECTORS = (
    RecordedInjector(
        "kv-without-draft",
        "kv_indptr is made from the prefix lengths although this backend counts the draft rows too.",
        after(with_draft, every(_without_draft)),
    ),
    RecordedInjector(
        "last-page-dropped",
        "The number of pages is rounded down, so a request's last partial page is left out.",
        _in_pages(every(_last_page_dropped)),
    ),
    RecordedInjector(
        "last-page-of-prefix",
        "kv_last_page_len is made from the prefix alone although the pages hold the draft rows too.",
        _in_pages(every(_last_page_of_prefix)),
    ),
    RecordedInjector(
        "slots-for-pages",
        "kv_indices holds the first slot of each page where the kernel expects the page's number.",
        _in_pages(every(_slots_for_pages)),
    ),
)

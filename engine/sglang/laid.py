"""Reads what the attention backend laid out for a verify step, before the target model runs on it.

Eager steps have it in ``forward_metadata``. On replay that object is stale: the persistent buffers are read, cut to
the batch that the graph was captured for, with the lengths that the host knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from engine.sglang.host import HostCopies, NotCopied
from engine.sglang.raw import Layout, cells_of

BLIND_BYTES = 4 << 20  # of an array whose length only the device knows


class Laid:
    """What one verify forward was laid out with; ``spec_info`` identifies the step.

    A hook keeps what it was called with and no more: the launch of the forward must not wait for it. :meth:`read` looks
    at it while the device is busy with the forward. Until the step's verification, nothing changes what it finds.
    """

    __slots__ = ("_read", "buffers", "copies", "forward_batch", "graph", "layout", "spec_info")

    def __init__(self, spec_info: Any, graph: str, read: Callable[[HostCopies], Layout]) -> None:
        """``graph``: "eager" or "replay"; ``read`` notes every array and says the rest."""
        self.spec_info, self.graph, self._read = spec_info, graph, read
        self.forward_batch: Any = None  # where it may know the requests' names
        self.buffers: Any = None  # of the graph's runner: rows of padded requests too
        self.layout: Layout | None = None  # once it was read
        self.copies = HostCopies()

    def read(self) -> HostCopies:
        """Note every array, once. Raises :class:`NotCopied`."""
        if self.layout is None:
            layout = self._read(self.copies)
            if self.buffers is not None:
                count = layout.captured_bs * layout.rows
                for name in ("input_ids", "positions", "out_cache_loc"):
                    self.copies.take(name, getattr(self.buffers, name), count)
                layout = replace(layout, padded=True)
            self.layout = layout
        return self.copies

    @property
    def rids(self) -> tuple[str, ...] | None:
        """Request ids as far as the forward batch knows them."""
        return None if self.forward_batch is None else names_of(self.forward_batch)


def rows_of(spec_info: Any) -> int:
    """Rows that verification sends for each request. Raises :class:`NotCopied` where there is no such number."""
    if getattr(spec_info, "ragged_verify_layout", None) is not None:
        raise NotCopied(
            f"{type(spec_info).__name__}: expected the same rows a request, found a ragged layout"
        )
    for name in ("draft_token_num", "num_tokens_per_req"):
        rows = getattr(spec_info, name, None)
        if isinstance(rows, int) and rows > 0:
            return rows
    raise NotCopied(f"{type(spec_info).__name__}: expected draft_token_num above 0, found none")


def names_of(batch: Any) -> tuple[str, ...] | None:
    """Request ids of a forward batch."""
    rids = getattr(batch, "rids", None)
    return tuple(map(str, rids)) if rids else None


def host_lengths(lengths: Any, count: int) -> list[int] | None:
    """Prefix lengths that the host knows already; None rather than ask the device."""
    if isinstance(lengths, torch.Tensor) and not lengths.is_cuda:
        return [int(length) for length in lengths[:count].tolist()]
    return None


def lay_eager(backend: Any, batch: Any) -> Laid:
    """From ``forward_metadata``, right after it was made."""
    metadata = backend.forward_metadata

    def read(copies: HostCopies) -> Layout:
        take, count = copies.take, len(batch.req_pool_indices)
        lengths = host_lengths(getattr(batch, "seq_lens_cpu", None), count)
        layout = _layout(backend, batch.spec_info, "eager", count, lengths is None)
        take("qo_indptr", metadata.qo_indptr)
        take("kv_indptr", metadata.kv_indptr)
        take("kv_indices", metadata.kv_indices, _cut(metadata.kv_indices, _total(lengths)))
        if metadata.custom_mask is not None:
            take("mask_indptr", metadata.mask_indptr)
            mask = metadata.custom_mask
            take("custom_mask", mask, _cut(mask, _cells(layout, lengths)))
        take("seq_lens", batch.seq_lens)
        return replace(layout, max_extend_len=metadata.max_extend_len)

    laid = Laid(batch.spec_info, "eager", read)
    laid.forward_batch = batch
    return laid


def lay_replay(
    backend: Any, spec_info: Any, requests: int, seq_lens: torch.Tensor, seq_lens_cpu: Any
) -> Laid:
    """From the persistent buffers, right after they were filled; ``requests``: captured ones."""

    def read(copies: HostCopies) -> Layout:
        take, lengths = copies.take, host_lengths(seq_lens_cpu, requests)
        layout = _layout(backend, spec_info, "replay", requests, lengths is None)
        take("qo_indptr", backend.qo_indptr, requests + 1)
        take("kv_indptr", backend.kv_indptr, requests + 1)
        slots = backend.cuda_graph_kv_indices
        take("kv_indices", slots, _cut(slots, _total(lengths)))
        take("seq_lens", seq_lens, requests)
        mask = _mask_buffer(backend)
        if mask is None or getattr(spec_info, "custom_mask", None) is None:
            return layout
        take("mask_indptr", backend.mask_indptr, requests + 1)
        take("custom_mask", mask, _cut(mask, _cells(layout, lengths)))
        return replace(layout, mask_capacity=mask.numel())

    return Laid(spec_info, "replay", read)


def _layout(backend: Any, spec_info: Any, graph: str, count: int, blind: bool) -> Layout:
    size = getattr(getattr(backend, "token_to_kv_pool_allocator", None), "size", None)
    return Layout(
        graph=graph,
        captured_bs=count,
        rows=rows_of(spec_info),
        width=getattr(backend, "num_draft_tokens", None),
        max_extend_len=None,
        mask_capacity=None,
        max_context=getattr(backend, "max_context_len", None),
        pool_size=size + 1 if isinstance(size, int) else None,  # slot 0 is the padding's
        deterministic=getattr(backend, "enable_deterministic", None),
        blind=blind,
    )


def _mask_buffer(backend: Any) -> torch.Tensor | None:
    """The persistent mask under the name that this version gives it."""
    if hasattr(backend, "cuda_graph_custom_mask"):
        buffer: torch.Tensor | None = backend.cuda_graph_custom_mask
        return buffer
    return getattr(getattr(backend, "_verify_mask", None), "buffer", None)


def _total(lengths: list[int] | None) -> int | None:
    return None if lengths is None else sum(lengths)


def _cells(layout: Layout, lengths: list[int] | None) -> int | None:
    return None if lengths is None else cells_of(layout, lengths)


def _cut(tensor: torch.Tensor, length: int | None) -> int:
    """Entries to take: as many as are known to be used, else what the bound allows."""
    return BLIND_BYTES // tensor.element_size() if length is None else length

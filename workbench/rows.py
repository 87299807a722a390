"""Where the cells of each mask row lie in the flat buffer: as used, and as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from engine.checks.context import StepContext


@dataclass(frozen=True)
class Span:
    """Cells of one row: ``start … stop-1`` of the buffer."""

    request: int  # number in the batch
    row: int  # local row
    start: int
    stop: int

    @property
    def stride(self) -> int:
        """Cells from this row to the next."""
        return self.stop - self.start


def should_be(context: StepContext) -> list[Span]:
    """Spans that the trees and prefix lengths imply, captured requests included."""
    geometry = context.oracle.geometry
    spans = []
    for i in range(geometry.bs):
        stride, base = int(geometry.strides[i]), int(geometry.mask_indptr[i])
        spans += [
            Span(i, row, base + row * stride, base + (row + 1) * stride)
            for row in range(int(geometry.q_lens[i]))
        ]
    return spans


def as_used(context: StepContext) -> list[Span] | None:
    """Spans that the recorded metadata makes the kernel read; None where it was not recorded."""
    inputs, config = context.step.inputs, context.step.config
    qo, kv, base = inputs.qo_indptr, inputs.kv_indptr, inputs.mask_indptr
    if qo is None or kv is None or base is None:
        return None
    spans = []
    limit = int(context.oracle.geometry.q_lens.sum())
    for i in range(min(len(qo), len(kv), len(base)) - 1):
        width, kv_len = int(qo[i + 1] - qo[i]), int(kv[i + 1] - kv[i])
        prefix = 0 if config.mask_layout == "qlen" else kv_len
        if config.kv_indptr_counts_draft and prefix:
            prefix -= width
        stride = prefix + width
        spans += [
            Span(i, row, int(base[i]) + row * stride, int(base[i]) + (row + 1) * stride)
            for row in range(min(width, limit))
        ]
    return spans


def span_at(spans: list[Span] | None, request: int, row: int) -> Span | None:
    """The span of one row, None if nothing covers it."""
    return next((s for s in spans or () if (s.request, s.row) == (request, row)), None)

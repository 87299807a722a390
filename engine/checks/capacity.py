"""I6: offsets fit their integers, the persistent buffer holds what it must serve, positions fit the rotary table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
GUESSED = ("int32", "uint32")  # integers that offsets are computed in where the record names others
LARGEST = {kind: int(np.iinfo(kind).max) for kind in INTEGERS}
HINTS = {
    "offset-overflow": "The offset does not fit the integers that it is computed in: use 64 bits.",
    "buffer-without-draft-columns": "The buffer was sized for the context alone: each row also holds one column a "
    "draft row.",
    "rope-table": "The rotary table ends before the deepest node: extend it, or shrink the tree near the limit.",
    "capacity": "The buffer is smaller than what the captured batch needs at full context.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most about offsets or the buffer, and one a request about positions."""
    about_step = next(_overflow(spec, context), None) or next(_buffer(spec, context), None)
    if about_step is not None:
        yield about_step
    yield from _rope(spec, context)


def _overflow(spec: Spec, context: StepContext) -> Iterator[Finding]:
    true, found = context.oracle.geometry.mask_indptr, context.step.inputs.mask_indptr
    recorded = _recorded_kind(context)
    for kind in dict.fromkeys((recorded, *GUESSED)):
        wrapped = None if kind is None else _wrap(true, kind)
        if wrapped is None or wrapped is true or np.array_equal(wrapped, true):
            continue
        if kind == recorded or (found is not None and np.array_equal(found, wrapped)):
            large = np.flatnonzero(wrapped != true)
            at = int(large[0])
            yield spec.finding(
                context,
                None,
                "offset-overflow",
                f"mask_indptr[{at}] should be {int(true[at])}, which {kind} turns into {int(wrapped[at])}",
                hint=HINTS["offset-overflow"],
                effect=Effect.CRASH,
                expected=int(true[at]),
                found=int(wrapped[at]),
                count=len(large),
            )


def is_wrapped(context: StepContext, found: Int64) -> bool:
    """Whether wrong offsets are the true ones as too small integers hold them."""
    true = context.oracle.geometry.mask_indptr
    for kind in (_recorded_kind(context), *GUESSED):
        wrapped = None if kind is None else _wrap(true, kind)
        if wrapped is not None and np.array_equal(found, wrapped):
            return not np.array_equal(wrapped, true)
    return False


def _recorded_kind(context: StepContext) -> str | None:
    """``config.index_dtype`` if it names integers."""
    name = context.step.config.index_dtype or ""
    return name if name in INTEGERS else None


def _wrap(numbers: Int64, kind: str) -> Int64:
    """The numbers, none of them negative, as integers of that kind hold them."""
    if int(numbers[-1]) <= LARGEST[kind]:  # they ascend
        return numbers
    wrapped: Int64 = numbers.astype(kind).astype(np.int64)
    return wrapped


def _buffer(spec: Spec, context: StepContext) -> Iterator[Finding]:
    config, q_lens = context.step.config, context.oracle.q_lens
    capacity, longest = config.mask_capacity, config.max_context
    if capacity is None or not len(q_lens):
        return
    geometry = context.oracle.geometry
    needed = int(geometry.mask_indptr[-1])
    if longest is not None and not geometry.qlen_only:
        needed = max(needed, sum(rows * (longest + rows) for rows in q_lens.tolist()))
    if capacity >= needed:
        return
    without = longest is not None and capacity == int(q_lens.sum()) * longest
    yield spec.finding(
        context,
        None,
        "buffer-without-draft-columns" if without else "capacity",
        f"mask_capacity is {capacity} cells, should be at least {needed}{_reason(context, needed)}",
        hint=HINTS["buffer-without-draft-columns" if without else "capacity"],
        effect=Effect.CRASH,
        expected=needed,
        found=capacity,
        count=needed - capacity,
    )


def _reason(context: StepContext, needed: int) -> str:
    """How the number of cells comes about, where the rows are alike."""
    longest, q_lens = context.step.config.max_context, context.oracle.q_lens
    rows, width = int(q_lens.sum()), int(q_lens.max())
    if longest is None or needed != rows * (longest + width):
        return ""
    return f" = {rows} rows * ({longest} tokens + {width} draft columns)"


def _rope(spec: Spec, context: StepContext) -> Iterator[Finding]:
    table, recorded = context.step.config.max_position, context.step.inputs.positions
    if table is None:
        return
    rows = [] if recorded is None else recorded.tolist()
    inside = min(rows, default=0) >= 0 and max(rows, default=-1) < table
    for request in context.readable:
        first = context.step.requests[request].prefix_len
        if inside and first >= 0 and first + context.oracle.trees[request].height < table:
            continue
        places = context.oracle.positions(request)[: context.oracle.num_verified(request)]
        real = context.oracle.real_rows(request)
        if recorded is not None:  # padding rows may stand anywhere within the table
            end = context.oracle.rows(request).stop
            places = np.concatenate([places, recorded[real.stop : end]])
        outside = np.flatnonzero((places >= table) | (places < 0))
        if not len(outside):
            continue
        node = int(outside[0])
        yield spec.finding(
            context,
            request,
            "rope-table",
            f"request {context.rid(request)}, row {real.start + node}: position {int(places[node])}, the rotary "
            f"table ends at {table - 1}",
            hint=HINTS["rope-table"],
            effect=Effect.CRASH,
            where=Where(node=node if node < len(real) else None, row=real.start + node),
            expected=f"0 … {table - 1}",
            found=int(places[node]),
            count=len(outside),
        )

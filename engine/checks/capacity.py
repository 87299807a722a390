"""I6: offsets fit their integers, the persistent buffer holds what it must serve, positions fit the rotary table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

WRAPS = {
    "int32": (2**31, 2**32),
    "uint32": (2**32, 2**32),
}  # first number that does not fit, modulus
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
    true, name = context.oracle.geometry.mask_indptr, context.step.config.index_dtype
    found = context.step.inputs.mask_indptr
    for kind, (limit, modulus) in WRAPS.items():
        large = np.flatnonzero(true >= limit)
        if not len(large):
            continue
        entry = int(large[0])
        wrapped = _wrap(true, limit, modulus)
        recorded = found is not None and np.array_equal(found, wrapped)
        if kind == name or recorded:
            yield spec.finding(
                context,
                None,
                "offset-overflow",
                f"mask_indptr[{entry}] should be {int(true[entry])}, which {kind} turns into "
                f"{int(wrapped[entry])}",
                hint=HINTS["offset-overflow"],
                effect=Effect.CRASH,
                expected=int(true[entry]),
                found=int(wrapped[entry]),
                count=len(large),
            )


def _wrap(numbers: Int64, limit: int, modulus: int) -> Int64:
    """The numbers as an integer of that range holds them."""
    low = limit - modulus
    wrapped: Int64 = (numbers - low) % modulus + low
    return wrapped


def _buffer(spec: Spec, context: StepContext) -> Iterator[Finding]:
    config, q_lens = context.step.config, context.oracle.q_lens
    capacity, longest = config.mask_capacity, config.max_context
    if capacity is None or not len(q_lens):
        return
    geometry = context.oracle.geometry
    rows, width = int(q_lens.sum()), int(q_lens.max())
    needed = int(geometry.mask_indptr[-1])
    if longest is not None and not geometry.qlen_only:
        needed = max(needed, rows * (longest + width))
    if geometry.bits:
        needed, unit = -(-needed // 8), 8
    else:
        unit = 1
    if capacity >= needed:
        return
    without = longest is not None and capacity == -(-rows * longest // unit)
    yield spec.finding(
        context,
        None,
        "buffer-without-draft-columns" if without else "capacity",
        f"mask buffer holds {capacity} cells, should hold {needed}"
        + (f" = {rows} rows * ({longest} + {width})" if longest is not None and unit == 1 else ""),
        hint=HINTS["buffer-without-draft-columns" if without else "capacity"],
        effect=Effect.CRASH,
        expected=needed,
        found=capacity,
        count=needed - capacity,
    )


def _rope(spec: Spec, context: StepContext) -> Iterator[Finding]:
    table, recorded = context.step.config.max_position, context.step.inputs.positions
    if table is None:
        return
    for request in context.readable:
        places = context.oracle.positions(request)
        real = context.oracle.real_rows(request)
        if recorded is not None:  # padding rows may stand anywhere within the table
            rows = context.oracle.rows(request)
            places = np.concatenate([places, recorded[real.stop : rows.stop]])
        outside = np.flatnonzero((places >= table) | (places < 0))
        if not len(outside):
            continue
        node = int(outside[0])
        yield spec.finding(
            context,
            request,
            "rope-table",
            f"row {real.start + node} stands at position {int(places[node])}, the rotary table has "
            f"{table} rows",
            hint=HINTS["rope-table"],
            effect=Effect.CRASH,
            where=Where(node=node if node < len(real) else None, row=real.start + node),
            expected=f"0 … {table - 1}",
            found=int(places[node]),
            count=len(outside),
        )

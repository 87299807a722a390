"""I5: the mask is packed as its reader unpacks it: bit order, byte alignment, row stride, bytes a request.

A wrong mask that another decoding turns into the intended one in every cell is a packing fault, and its content (I8)
only follows. Only where no decoding explains the cells do bare byte extents, and bytes that are no cells, speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.mask_content import right_as_addressed
from engine.checks.row_extents import entry, plain
from engine.checks.unpacking import Decoding, explanation
from engine.layout import indptr
from engine.step import Int64

HINTS = {
    "bit-order": "Decoding most-significant-bit first gives the tree in all cells.",
    "request-not-byte-aligned": "Decoding all requests as one stream of bits gives the tree in all cells.",
    "row-stride": "Decoding with another row stride gives the tree in all cells.",
    "byte-extent": "The byte offsets are not those of requests that each begin at a byte.",
    "packing": "Decoding with another packing than the recorded one gives the tree in all cells.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request whose cells another decoding explains; else bare extents and values."""
    explained = []
    if context.step.inputs.custom_mask is not None:
        for request in context.readable:
            if context.surely_intended(request):
                continue
            decoding = explanation(context, request)
            if decoding is not None and not right_as_addressed(context, request):
                explained.append(_explained(spec, context, request, decoding))
    yield from explained
    if not explained:
        yield from _extents(spec, context)
        yield from _values(spec, context)


def _explained(spec: Spec, context: StepContext, request: int, decoding: Decoding) -> Finding:
    """Another decoding equals the intended mask in every cell of the request."""
    difference = context.built_difference(request)
    assert difference is not None
    return spec.finding(
        context,
        request,
        decoding.diagnosis,
        f"request {context.rid(request)}: {_words(context, request, decoding)}; "
        f"{len(difference.cells)} cells are wrong as they are read",
        hint=HINTS[decoding.diagnosis],
        effect=Effect.OUTPUT,
        where=context.locate(request, difference),
        expected=_right(context, request, decoding),
        found=decoding.found,
        count=len(difference.cells),
    )


def _words(context: StepContext, request: int, decoding: Decoding) -> str:
    if decoding.diagnosis == "bit-order":
        return "bits are packed most significant first, should be least significant first"
    if decoding.diagnosis == "request-not-byte-aligned":
        first = int(context.oracle.geometry.byte_indptr[request])
        return f"its bits begin at bit {decoding.found} of the stream, should begin at byte {first}"
    if decoding.diagnosis == "packing":
        right = _right(context, request, decoding)
        return f"the mask is packed as {decoding.found}, should be {right}"
    unit = "bits" if context.oracle.geometry.bits else "cells"
    stride = int(context.oracle.geometry.strides[request])
    if decoding.found == stride:
        return f"it begins late, since rows before its own are padded; its rows are {stride} {unit} apart"
    return f"rows are {decoding.found} {unit} apart, should be {stride}"


def _right(context: StepContext, request: int, decoding: Decoding) -> int | str:
    if decoding.diagnosis == "bit-order":
        return "little"
    if decoding.diagnosis == "request-not-byte-aligned":
        return int(context.oracle.geometry.byte_indptr[request]) * 8
    if decoding.diagnosis == "packing":
        bits = context.oracle.geometry.bits
        return "bits, least significant first" if bits else "one byte a cell"
    return int(context.oracle.geometry.strides[request])


def _extents(spec: Spec, context: StepContext) -> Iterator[Finding]:
    found, geometry = context.step.inputs.byte_indptr, context.oracle.geometry
    if found is None or not geometry.bits:
        return
    expected = geometry.byte_indptr
    at = first_difference(found, expected)
    if at is not None:
        unit = " (the offsets are in bits)" if np.array_equal(found, geometry.mask_indptr) else ""
        yield spec.finding(
            context,
            None,
            "byte-extent",
            f"byte_indptr[{at}] is {plain(entry(found, at))}, should be {plain(entry(expected, at))}{unit}",
            hint=HINTS["byte-extent"],
            effect=Effect.OUTPUT,
            where=Where(byte=entry(expected, at)),
            expected=entry(expected, at),
            found=entry(found, at),
            count=count_differences(found, expected),
            consequence_of=_cause_of_extents(context, found),
        )


def _cause_of_extents(context: StepContext, found: Int64) -> str | None:
    """I4 where the offsets are those of ``mask_indptr`` as recorded."""
    cells = context.step.inputs.mask_indptr
    if cells is None or not context.has("I4", None):
        return None
    return "I4" if np.array_equal(found, indptr((np.diff(cells) + 7) // 8)) else None


def _values(spec: Spec, context: StepContext) -> Iterator[Finding]:
    """Bytes of real rows that are neither 0 nor 1 where a byte is a cell."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    if buffer is None or geometry.bits:
        return
    for request in context.readable:
        if context.surely_intended(request):
            continue
        first, stride = int(geometry.mask_indptr[request]), int(geometry.strides[request])
        used = buffer[first : first + context.oracle.num_verified(request) * stride]
        odd = np.flatnonzero(used > 1)
        if len(odd):
            byte, node = first + int(odd[0]), int(odd[0]) // stride
            skipped = int(
                geometry.prefix_lens[request] - geometry.mask_columns_before_tree[request]
            )
            yield spec.finding(
                context,
                request,
                "packing",
                f"request {context.rid(request)}: custom_mask[{byte}] is {int(buffer[byte])}, should be 0 or 1",
                hint="A mask of one byte a cell holds 0 and 1 alone; what a reader makes of other values is open.",
                effect=Effect.OUTPUT,
                where=Where(
                    node=node,
                    row=int(geometry.qo_indptr[request]) + node,
                    column=int(odd[0]) % stride + skipped,
                    byte=byte,
                ),
                expected="0 or 1",
                found=int(buffer[byte]),
                count=len(odd),
            )

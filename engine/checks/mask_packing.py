"""I5: the mask is packed as its reader unpacks it: bit order, byte alignment, row stride, bytes a request.

A wrong mask that another decoding turns into the intended one in every cell is a packing fault, and its content (I8)
only follows. Only where no decoding explains the cells do bare byte extents and unpackable values speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.unpacking import Decoding, alternatives, reproduces
from engine.step import Int64

HINTS = {
    "bit-order": "Decoding most-significant-bit first gives the tree in all cells.",
    "request-not-byte-aligned": "Decoding all requests as one stream of bits gives the tree in all cells.",
    "row-stride": "Decoding with another row stride gives the tree in all cells.",
    "byte-extent": "The byte offsets are not those of requests that each begin at a byte.",
    "packing": "A mask of one byte a cell holds 0 and 1 alone; other values are undefined for its reader.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request whose cells another decoding explains; else one for the whole step at most."""
    explained = []
    if context.step.inputs.custom_mask is not None:
        for request in context.readable:
            difference = context.difference(context.built[request], request)
            if len(difference.cells):
                explained += list(_explained(spec, context, request))
    yield from explained
    if not explained:
        found = next(_extents(spec, context), None) or next(_values(spec, context), None)
        if found is not None:
            yield found


def _explained(spec: Spec, context: StepContext, request: int) -> Iterator[Finding]:
    """The first other decoding that equals the intended mask in every cell of the request."""
    for decoding in alternatives(context, request):
        if reproduces(context, request, decoding):
            difference = context.difference(context.built[request], request)
            yield spec.finding(
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
            return


def _words(context: StepContext, request: int, decoding: Decoding) -> str:
    if decoding.diagnosis == "bit-order":
        return "bits are packed most significant first, should be least significant first"
    if decoding.diagnosis == "request-not-byte-aligned":
        first = int(context.oracle.geometry.byte_indptr[request])
        return f"its bits begin at bit {decoding.found} of the stream, should begin at byte {first}"
    unit = "bits" if context.oracle.geometry.bits else "cells"
    stride = int(context.oracle.geometry.strides[request])
    return f"rows are {decoding.found} {unit} apart, should be {stride}"


def _right(context: StepContext, request: int, decoding: Decoding) -> int | str:
    if decoding.diagnosis == "bit-order":
        return "little"
    if decoding.diagnosis == "request-not-byte-aligned":
        return int(context.oracle.geometry.byte_indptr[request]) * 8
    return int(context.oracle.geometry.strides[request])


def _extents(spec: Spec, context: StepContext) -> Iterator[Finding]:
    found, geometry = context.step.inputs.byte_indptr, context.oracle.geometry
    if found is None or not geometry.bits:
        return
    expected = geometry.byte_indptr
    entry = first_difference(found, expected)
    if entry is not None:
        value = str(int(found[entry])) if entry < len(found) else "missing"
        should = str(int(expected[entry])) if entry < len(expected) else "absent"
        yield spec.finding(
            context,
            None,
            "byte-extent",
            f"byte_indptr[{entry}] is {value}, should be {should}{_unit_hint(found, geometry.mask_indptr)}",
            hint=HINTS["byte-extent"],
            effect=Effect.OUTPUT,
            where=Where(byte=int(expected[entry]) if entry < len(expected) else None),
            expected=[int(n) for n in expected],
            found=[int(n) for n in found],
            count=count_differences(found, expected),
        )


def _unit_hint(found: Int64, cells: Int64) -> str:
    return " (the offsets are in bits)" if np.array_equal(found, cells) else ""


def _values(spec: Spec, context: StepContext) -> Iterator[Finding]:
    """Bytes of live requests that are neither 0 nor 1."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    if buffer is None or geometry.bits or context.step.raw_bs == 0:
        return
    used = buffer[: int(geometry.mask_indptr[context.step.raw_bs])]
    odd = np.flatnonzero(used > 1)
    if len(odd):
        byte = int(odd[0])
        yield spec.finding(
            context,
            None,
            "packing",
            f"custom_mask[{byte}] is {int(used[byte])}, should be 0 or 1",
            hint=HINTS["packing"],
            effect=Effect.OUTPUT,
            where=Where(byte=byte),
            expected="0 or 1",
            found=int(used[byte]),
            count=len(odd),
        )

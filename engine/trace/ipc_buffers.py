"""The buffers of one record batch, found in its body and decompressed.

Covered: where each lies, buffers stored as they are and ones compressed with lz4 or zstd, how much they claim to hold
together, and that each holds neither more nor less than it claims. Not covered: what they mean
(``engine.trace.arrow_decode``).
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from engine.step import Int64
from engine.trace import limits
from engine.trace.errors import FieldProblem
from engine.trace.ipc import BatchLayout

Pair = tuple[bytes, memoryview]
EMPTY = memoryview(b"")
# Before the bytes of each buffer of a compressed batch: their number when decompressed, or that they are as they are.
CLAIM, AS_IT_IS = Struct("<q"), -1


def buffers_of(layout: BatchLayout, body: memoryview, count: int | None = None) -> list[memoryview]:
    """The first ``count`` buffers, or all. Raises ``FieldProblem``, or ``OSError`` for one that cannot be decompressed.

    No more than ``limits.MAX_INFLATED_BYTES`` are allocated for all of them.
    """
    offsets, lengths = layout.offsets, layout.lengths[:count]
    filled = np.flatnonzero(lengths)
    starts, ends = offsets[filled], offsets[filled] + lengths[filled]
    head = 0 if layout.codec is None else CLAIM.size
    if len(filled):
        _check_places(starts, lengths[filled], head, len(body))
    buffers, left = [EMPTY] * len(lengths), limits.MAX_INFLATED_BYTES
    inflated: dict[int, Pair] = {}  # by claim: the last buffer packed, and decompressed
    for number, start, end in zip(filled.tolist(), starts.tolist(), ends.tolist(), strict=True):
        claim = CLAIM.unpack_from(body, start)[0] if head else AS_IT_IS
        if claim == AS_IT_IS:
            buffers[number] = body[start + head : end]
            continue
        left -= claim
        if left < 0:
            most = limits.MAX_INFLATED_BYTES
            raise FieldProblem(f"at most {most} bytes decompressed", f"a claim of {claim}")
        packed = body[start + head : end].tobytes()
        # Slots of the prefixes and ``kv_indices`` often hold the same: equal bytes are decompressed once.
        twin = inflated.get(claim)
        if twin is None or twin[0] != packed:
            twin = inflated[claim] = packed, _inflate(layout.codec, packed, claim)
        buffers[number] = twin[1]
    return buffers


def _check_places(starts: Int64, lengths: Int64, head: int, size: int) -> None:
    """Raise ``FieldProblem`` unless buffers that are not empty lie in a body of ``size`` bytes, each with its head."""
    if lengths.min() < max(head, 1):
        raise FieldProblem("buffers inside the message", "one without its length")
    inside = starts.min() >= 0 and max(int(starts.max()), int(lengths.max())) <= size
    if not inside or (starts + lengths).max() > size or np.bitwise_or.reduce(starts) % 8:
        raise FieldProblem("buffers inside the message", "one outside")


def _inflate(name: str | None, data: bytes, length: int) -> memoryview:
    codec: Any = _codec(name)
    if length < 0:
        raise FieldProblem("lengths of buffers", str(length))
    if not length:
        return EMPTY
    if name == "lz4" and _suffices(codec, data, length - 1):
        # lz4 complains of too little room only, and what it does not fill would be anything
        raise FieldProblem(f"{length} bytes in a compressed buffer", "fewer")
    return memoryview(codec.decompress(data, length))


@cache
def _codec(name: str | None) -> Any:
    return pa.Codec(name)


def _suffices(codec: Any, data: bytes, length: int) -> bool:
    try:
        codec.decompress(data, length)
    except OSError:
        return False
    return True

"""The buffers of one record batch, found in its body and decompressed.

Covered: where each lies, buffers stored as they are and ones compressed with lz4 or zstd, how much they claim to hold
together, and that each holds neither more nor less than it claims. Not covered: what they mean
(``engine.trace.arrow_decode``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from engine.step import Int64
from engine.trace import limits
from engine.trace.errors import FieldProblem
from engine.trace.ipc import BatchLayout

Pair = tuple[bytes, memoryview]
EMPTY = memoryview(b"")
NOTHING = slice(0)
# Before the bytes of each buffer of a compressed batch: their number when decompressed, or that they are as they are.
CLAIM_BYTES, AS_IT_IS = 8, -1
FAR = 1 << 62  # sums of smaller numbers stay inside int64


def buffers_of(
    layout: BatchLayout,
    body: memoryview,
    count: int | None = None,
    known: slice = NOTHING,
) -> list[memoryview]:
    """The first ``count`` buffers, or all; those that are ``known`` already come out empty.

    Raises ``FieldProblem``, or ``OSError`` for one that cannot be decompressed. No more than
    ``limits.MAX_INFLATED_BYTES`` are allocated for all of them.
    """
    lengths = layout.lengths[:count].copy()
    lengths[known] = 0
    filled = np.flatnonzero(lengths)
    starts, sizes = layout.offsets[filled], lengths[filled]
    head = 0 if layout.codec is None else CLAIM_BYTES
    _check_places(starts, sizes, head, len(body))
    buffers = [EMPTY] * len(lengths)
    places = zip(filled.tolist(), (starts + head).tolist(), (starts + sizes).tolist(), strict=True)
    for number, start, end in places:
        buffers[number] = body[start:end]
    if head:
        words = np.frombuffer(body, np.int64, len(body) // 8)
        claims = words[starts >> 3]
        packed = np.flatnonzero(claims != AS_IT_IS)
        _unpack(layout.codec, buffers, filled[packed].tolist(), claims[packed].tolist())
    return buffers


def _unpack(
    codec: str | None, buffers: list[memoryview], numbers: list[int], claims: list[int]
) -> None:
    """Decompress the buffers of these numbers (in place), each to the length that it claims."""
    left = limits.MAX_INFLATED_BYTES
    inflated: dict[int, Pair] = {}  # by claim: the last buffer packed, and decompressed
    for number, claim in zip(numbers, claims, strict=True):
        left -= claim
        if left < 0:
            most = limits.MAX_INFLATED_BYTES
            raise FieldProblem(f"at most {most} bytes decompressed", f"a claim of {claim}")
        packed = buffers[number].tobytes()
        # Slots of the prefixes and ``kv_indices`` often hold the same: equal bytes are decompressed once.
        twin = inflated.get(claim)
        if twin is None or twin[0] != packed:
            twin = inflated[claim] = packed, _inflate(codec, packed, claim)
        buffers[number] = twin[1]


def _check_places(starts: Int64, sizes: Int64, head: int, size: int) -> None:
    """Raise ``FieldProblem`` unless buffers that are not empty lie in a body of ``size`` bytes, each with its head."""
    if not len(starts):
        return
    if int(np.minimum.reduce(sizes)) < max(head, 1):
        raise FieldProblem("buffers inside the message", "one without its length")
    place = int(np.bitwise_or.reduce(starts))  # negative where one is
    within = 0 <= place < FAR and int(np.maximum.reduce(sizes)) < FAR
    if not within or place % 8 or int(np.maximum.reduce(starts + sizes)) > size:
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

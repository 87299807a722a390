"""Whether a request's mask is right, told by comparing bytes: no cell is decoded, no difference looked for.

Covered: both layouts and encodings, sliding windows. True says that in every row of a node the buffer holds exactly
the intended cells, each as a 0 or a 1. False says nothing: the buffer may end too early, or say the same otherwise;
where the masks differ is then for :meth:`engine.checks.context.StepContext.difference` to tell. Not covered: metadata.
"""

from __future__ import annotations

import numpy as np

from engine.layout import VISIBLE
from engine.oracle import Oracle
from engine.step import VerifyStep

ENABLED = True  # tests turn it off, so that every check looks at every value, and every mask at every cell


def mask_is_intended(step: VerifyStep, oracle: Oracle, request: int) -> bool:
    """See the module's docstring. ``request``: a live one whose tree is well formed."""
    if not ENABLED or step.inputs.custom_mask is None:
        return False
    return _stored(step, oracle, request) == _intended(oracle, request)


def _intended(oracle: Oracle, request: int) -> bytes:
    """Intended cells of the rows of nodes in the columns that the buffer holds, a byte a cell."""
    nodes, q_len = oracle.num_verified(request), len(oracle.rows(request))
    if oracle.step.config.sliding_window is not None and not oracle.geometry.qlen_only:
        return oracle.intended(request).cells[:nodes].tobytes()
    before = bytes([VISIBLE]) * int(oracle.geometry.mask_columns_before_tree[request])
    block = oracle.tree_block(request).tobytes()
    rows = (block[row : row + q_len] for row in range(0, nodes * q_len, q_len))
    return b"".join([part for row in rows for part in (before, row)])


def _stored(step: VerifyStep, oracle: Oracle, request: int) -> bytes:
    """Cells of the rows of nodes as the buffer holds them, a byte a cell."""
    buffer, geometry = step.inputs.custom_mask, oracle.geometry
    assert buffer is not None
    count = oracle.num_verified(request) * int(geometry.strides[request])
    if not geometry.bits:
        first = int(geometry.mask_indptr[request])
        return buffer[first : first + count].tobytes()
    first = int(geometry.byte_indptr[request])
    packed = buffer[first : first + (count + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[:count].tobytes()

"""Which node's keys and values a slot holds after a move, from fingerprints before and after it."""

from __future__ import annotations

import numpy as np

from engine.step import Int64, LayerCommit


def committed(
    before: Int64, after: Int64, paths: list[Int64], rows: int
) -> tuple[LayerCommit, ...]:
    """Whose rows the first slots of each request hold after the move; -1 for nobody's.

    ``before``, ``after``: int64 [layers, requests * rows]; layers are numbered within the pool. ``paths``: the nodes
    that were accepted. Where several nodes had equal rows, the accepted one counts.
    """
    return tuple(
        LayerCommit(
            layer,
            tuple(
                _nodes(old[i * rows : (i + 1) * rows], new[i * rows : (i + 1) * rows], path)
                for i, path in enumerate(paths)
            ),
        )
        for layer, (old, new) in enumerate(zip(before, after, strict=True))
    )


def _nodes(old: Int64, new: Int64, path: Int64) -> Int64:
    found = []
    for place, node in enumerate(path.tolist()):
        same = np.flatnonzero(old == new[place])
        found.append(node if node in same else int(same[0]) if len(same) else -1)
    return np.array(found, np.int64)

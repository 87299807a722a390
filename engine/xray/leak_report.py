"""Leak mass as plain JSON values."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.step import VerifyStep
from engine.xray.leak import NAMES, Leak

DIGITS = 6


def leak_report(step: VerifyStep, leak: Leak, target: str) -> dict[str, Any]:
    """What leaks in a step, by row and by head.

    ``step``, ``rank``, ``target``, ``layers``, ``heads``, ``leaks``, ``real_rows``, ``written_rows``, ``choices_kept``
    (written rows that choose what was recorded: fewer where an earlier step left the recorded run's cache wrong),
    ``largest_logit_change``, ``by_head`` ([layers][heads], mean over rows of nodes), and per row of a node ``request``,
    ``row``, ``written``, ``mean``, ``max`` with its ``layer`` and ``head``, ``places`` (mean by place) and
    ``logit_change``.
    """
    layers, heads, *_ = leak.mass.shape
    real = np.flatnonzero(leak.real)
    return {
        "step": step.step,
        "rank": step.rank,
        "target": target,
        "layers": layers,
        "heads": heads,
        "leaks": leak.leaks,
        "real_rows": len(real),
        "written_rows": int((leak.real & leak.written).sum()),
        "choices_kept": leak.choices_kept,
        "largest_logit_change": float(leak.logit_change.max(initial=0.0)),
        "by_head": np.round(leak.total[:, :, real].mean(axis=2), DIGITS).tolist(),
        "rows": [_row(step, leak, int(row)) for row in real],
    }


def _row(step: VerifyStep, leak: Leak, row: int) -> dict[str, Any]:
    total = leak.total[:, :, row]
    layer, head = np.unravel_index(int(total.argmax()), total.shape)
    by_place = leak.mass[:, :, row].mean(axis=(0, 1))
    return {
        "request": step.requests[int(leak.request[row])].rid,
        "row": int(leak.row[row]),
        "written": bool(leak.written[row]),
        "mean": round(float(total.mean()), DIGITS),
        "max": round(float(total[layer, head]), DIGITS),
        "layer": int(layer),
        "head": int(head),
        "places": {
            name: round(float(share), DIGITS) for name, share in zip(NAMES, by_place, strict=True)
        },
        "logit_change": round(float(leak.logit_change[row]), DIGITS),
    }

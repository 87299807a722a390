"""An X-ray of one step as it is handed on: plain JSON values, and the masks that only a run can give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.layout import Cells, MaskKind, MaskView
from engine.step import VerifyStep
from engine.xray.kernels import Kernel
from engine.xray.measure import Measurement, ProgressFn, measure
from engine.xray.verdict import Fault, Judged, Pair, judge
from engine.xray.words import sentence

REPORT, MASKS = "report.json", "masks.npz"
GIVEN = (MaskKind.ADDRESSED, MaskKind.MEASURED)


@dataclass(frozen=True, eq=False)
class XRay:
    """What a kernel did on one step."""

    report: dict[str, Any]  # see :func:`examine`
    cells: Mapping[tuple[str, int], Cells]  # by mask and number of the live request

    @property
    def agrees(self) -> bool:
        """Whether all four masks of every request are the same."""
        return all(request["fault"] == Fault.NONE for request in self.report["requests"])

    def mask(self, kind: MaskKind, request: int, prefix_len: int) -> MaskView:
        """The addressed or the measured mask; which bytes its cells were read from is not known."""
        cells = self.cells[str(kind), request]
        return MaskView(kind, prefix_len, cells, np.full(cells.shape, -1, np.int64))


def examine(
    step: VerifyStep,
    kernel: Kernel,
    *,
    device: torch.device | None = None,
    sglang_path: str | None = None,
    progress: ProgressFn | None = None,
) -> XRay:
    """X-ray a step in this process.

    The report: ``step``, ``rank``, ``kernel`` (with its version), ``device``, ``passes``, ``prefix_mask_read``, and per
    live request ``request``, ``rows``, ``nodes``, ``prefix_len``, ``fault`` (clean, builder, metadata, kernel),
    ``sentence``, ``pairs``, the local rows that are ``unwritten``, ``empty``, ``contested`` or read ``outside``,
    ``foreign`` (the first ones), ``foreign_count`` and ``repeated`` (row, column, times). Raises :class:`XRayError` as
    :func:`measure` does.
    """
    measured = measure(step, kernel, device=device, sglang_path=sglang_path, progress=progress)
    judged = judge(step, measured)
    cells = {(str(kind), i): j.masks[kind].cells for i, j in enumerate(judged) for kind in GIVEN}
    return XRay(_report(step, measured, judged, device), cells)


def _report(
    step: VerifyStep, measured: Measurement, judged: list[Judged], device: torch.device | None
) -> dict[str, Any]:
    return {
        "step": step.step,
        "rank": step.rank,
        "kernel": measured.label,
        "device": str(device or "cpu"),
        "passes": measured.passes,
        "prefix_mask_read": measured.reads_prefix,
        "requests": [_request(each) for each in judged],
    }


def _request(judged: Judged) -> dict[str, Any]:
    intended = judged.masks[MaskKind.INTENDED]
    return {
        "request": judged.rid,
        "rows": intended.q_len,
        "nodes": judged.num_nodes,
        "prefix_len": intended.prefix_len,
        "fault": str(judged.fault),
        "sentence": sentence(judged),
        "pairs": [_pair(pair) for pair in judged.pairs],
        "unwritten": list(judged.unwritten),
        "empty": list(judged.empty),
        "contested": list(judged.contested),
        "outside": list(judged.outside),
        "foreign": [{"row": f.row, "key": f.key, "times": f.times} for f in judged.foreign],
        "foreign_count": judged.foreign_count,
        "repeated": [list(place) for place in judged.repeated],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    first = None if not pair.cells else {"row": pair.cells[0][0], "column": pair.cells[0][1]}
    return {
        "left": str(pair.left),
        "right": str(pair.right),
        "agree": pair.agrees,
        "cells": len(pair.cells),
        "foreign": pair.foreign,
        "first": first,
    }


def save(folder: Path, xray: XRay) -> None:
    """Write both parts into a folder."""
    arrays = {f"{kind}_{request}": cells for (kind, request), cells in xray.cells.items()}
    np.savez_compressed(folder / MASKS, **arrays)  # type: ignore[arg-type]
    (folder / REPORT).write_text(json.dumps(xray.report), encoding="utf-8")


def restore(folder: Path) -> XRay:
    """Read what :func:`save` wrote."""
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    with np.load(folder / MASKS, allow_pickle=False) as arrays:
        names = {name: name.rpartition("_") for name in arrays.files}
        cells = {(kind, int(n)): arrays[name] for name, (kind, _, n) in names.items()}
    return XRay(report, cells)

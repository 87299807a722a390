"""The arguments of a launch, bounded: what the recorded metadata makes a kernel read lies inside a buffer.

A kernel takes offsets at their word, and a wrong one would read foreign memory. So the extents that the metadata spans
are computed first; every buffer is padded to hold them, with canaries whose keys are told apart from all others, and
extents too large for that are an :class:`XRayError`. Slots are renumbered without gaps, so a pool of any size fits.

Not covered: faults that need real slot numbers (overflow of ``slot * stride``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.oracle import Oracle
from engine.step import Int64, UInt8, VerifyStep
from engine.xray.errors import XRayError
from engine.xray.keys import Keys

MARGIN = 128  # rows, entries and cells around every buffer, whatever the metadata says
MOST_ROWS, MOST_ENTRIES, MOST_CELLS = 1 << 13, 1 << 20, 1 << 27  # of a padded buffer
NEEDED = ("qo_indptr", "kv_indptr", "kv_indices", "mask_indptr", "custom_mask", "max_extend_len")


@dataclass(frozen=True, eq=False)
class Padded:
    """A buffer with canaries before and behind: ``values[front:]`` is what the kernel is given."""

    values: np.ndarray
    front: int
    size: int  # recorded elements


@dataclass(frozen=True, eq=False)
class Launch:
    """What one launch over the whole batch is given, and what each element means."""

    qo_indptr: Int64  # [batch + 1]
    kv_indptr: Int64  # [batch + 1]
    mask_indptr: Int64  # [batch]
    max_extend_len: int
    kv_indices: Padded  # int64, renumbered slots
    custom_mask: Padded  # uint8
    rows: Padded  # int64, key of each row
    slot_keys: Int64  # [slots + 2], key that each renumbered slot holds; the last two are canaries
    row_slots: Padded | None  # int64, renumbered slot of each draft row; None: not recorded
    reads_prefix: bool  # prefix columns of the mask are read, as deterministic kernels do
    window: int | None  # a key is visible iff q_position - k_position < window
    mask_overrun: bool  # cells outside the recorded buffer are read

    @property
    def batch(self) -> int:
        """Programs, one a request."""
        return len(self.qo_indptr) - 1


def bounded(step: VerifyStep, oracle: Oracle, keys: Keys) -> Launch:
    """The launch of a recorded step. Raises :class:`XRayError` where it has none or spans too much."""
    inputs = step.inputs
    assert inputs.qo_indptr is not None
    assert inputs.kv_indptr is not None
    assert inputs.kv_indices is not None
    assert inputs.mask_indptr is not None
    assert inputs.custom_mask is not None
    longest = grid_rows(step)
    assert longest is not None
    batch = len(inputs.qo_indptr) - 1
    _long_enough("qo_indptr", inputs.qo_indptr, 2)
    _long_enough("kv_indptr", inputs.kv_indptr, batch + 1)
    _long_enough("mask_indptr", inputs.mask_indptr, batch)
    if not 0 <= longest <= MOST_ROWS:
        raise XRayError(f"max_extend_len: expected 0 … {MOST_ROWS}, found {longest}")
    qo, kv, masks = (a.tolist() for a in (inputs.qo_indptr, inputs.kv_indptr, inputs.mask_indptr))
    if step.config.sliding_window is not None and bool((np.diff(kv) < 0).any()):
        raise XRayError(
            f"kv_indptr: expected offsets that never fall (a window's entries follow from them), found {kv}"
        )
    canary = len(keys.slots)
    entries = np.searchsorted(keys.slots, inputs.kv_indices)
    rows, cells, written = np.arange(keys.rows), inputs.custom_mask, inputs.out_cache_loc
    padded_rows = _padded("qo_indptr", rows, keys.beyond_rows, pairwise(qo), MOST_ROWS, "rows sent")
    padded_entries = _padded(
        "kv_indptr", entries, canary, pairwise(kv), MOST_ENTRIES, "entries of kv_indices"
    )
    programs = zip(pairwise(qo), pairwise(kv), masks[:batch], strict=False)
    reads = [_cells_of(*program) for program in programs]
    return Launch(
        inputs.qo_indptr,
        inputs.kv_indptr[: batch + 1],
        inputs.mask_indptr[:batch],
        longest,
        padded_entries,
        _padded("mask_indptr", cells, 0, reads, MOST_CELLS, "cells of custom_mask"),
        padded_rows,
        np.append(keys.holder, [keys.beyond_indices, keys.beyond_rows]),
        None if written is None else _row_slots(keys, written, canary + 1, padded_rows),
        oracle.reads_prefix(),
        step.config.sliding_window,
        any(low < 0 or high > len(cells) for low, high in reads if low < high),
    )


def _row_slots(keys: Keys, written: Int64, canary: int, rows: Padded) -> Padded:
    """``out_cache_loc`` with canaries wherever the rows have some."""
    slots = np.full(len(rows.values), canary)
    known = np.searchsorted(keys.slots, written[: keys.rows])
    slots[rows.front : rows.front + len(known)] = known
    return Padded(slots, rows.front, len(known))


def grid_rows(step: VerifyStep) -> int | None:
    """Rows a request that the launch's grid covers: ``max_extend_len``, or what was baked into a graph in its place.

    SGLang's Triton backend captures a verify forward with its own ``num_draft_tokens``.
    """
    if step.inputs.max_extend_len is None and step.source.graph == "replay":
        return step.config.num_draft_tokens
    return step.inputs.max_extend_len


def require(step: VerifyStep, oracle: Oracle) -> None:
    """Raise :class:`XRayError` for a step that lacks an input or whose layout these kernels do not read."""
    lacking = [name for name in NEEDED if getattr(step.inputs, name) is None]
    if "max_extend_len" in lacking and grid_rows(step) is not None:
        lacking.remove("max_extend_len")
    if lacking:
        raise XRayError(
            f"step {step.step}: expected {', '.join(lacking)} to be recorded, found none"
        )
    if step.config.budget is None and step.config.verify_rows != "ragged":
        raise XRayError(f"step {step.step}: expected config.budget to be recorded, found none")
    config = step.config
    layout = {
        "mask_layout": (config.mask_layout or "full", "full"),
        "mask_encoding": (config.mask_encoding or "bytes", "bytes"),
        "kv_indptr_unit": (config.kv_indptr_unit or "token", "token"),
        "kv_indptr_counts_draft": (bool(config.kv_indptr_counts_draft), False),
    }
    for name, (found, read) in layout.items():
        if found != read:
            raise XRayError(f"{name}: expected {read} (what these kernels read), found {found}")
    if not all(all(tree.paths) for tree in oracle.trees):
        raise XRayError(f"step {step.step}: expected trees whose nodes all reach the root")


def _cells_of(rows: tuple[int, int], entries: tuple[int, int], start: int) -> tuple[int, int]:
    """First cell that a program may read and the one behind the last."""
    width, kv_len = rows[1] - rows[0], entries[1] - entries[0]
    if width <= 0:
        return start, start
    # Columns are read up to kv_len + width of rows 0 … width - 1, a row taking as many cells.
    stride = kv_len + width
    ends = [
        start + row * stride + column for row in (0, width - 1) for column in (0, kv_len, stride)
    ]
    return min(ends), max(ends)


def _padded(
    name: str,
    values: np.ndarray,
    canary: int,
    spans: Iterable[tuple[int, int]],
    most: int,
    unit: str,
) -> Padded:
    spans = [(low, high) for low, high in spans if low < high]
    low = min((low for low, _ in spans), default=0)
    high = max((high for _, high in spans), default=0)
    if low < -most or high > max(most, len(values) + most):
        raise XRayError(
            f"{name}: expected offsets within 0 … {len(values)} ({unit}), found {low} … {high}, "
            "too far outside to run"
        )
    front, back = MARGIN + max(-low, 0), MARGIN + max(high - len(values), 0)
    return Padded(np.pad(values, (front, back), constant_values=canary), front, len(values))


def _long_enough(name: str, array: Int64, length: int) -> None:
    if len(array) < length:
        raise XRayError(f"{name}: expected at least {length} entries, found {len(array)}")


def mask_cells(launch: Launch, fill: int) -> UInt8:
    """The padded mask with ``fill`` in every cell outside the recorded buffer."""
    padded = launch.custom_mask
    cells = np.full(len(padded.values), fill, np.uint8)
    inside = slice(padded.front, padded.front + padded.size)
    cells[inside] = padded.values[inside]
    return cells

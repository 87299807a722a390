"""Runs a kernel on a bounded launch with one-hot values, in as many passes as its heads hold channels.

Every key has a channel; heads carry different channels, so one launch covers heads × dim of them. The output is
poisoned before, so a row that nobody writes still holds the poison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.layout import indptr
from engine.xray.bounds import Launch, Padded, mask_cells
from engine.xray.kernels import Arguments, Runner

HEAD_DIM = 128  # of the probe; what the tiles of both kernels depend on
MOST_BYTES = 1 << 28  # of one pass's values
MOST_HEADS = 4  # of one pass: the interpreter takes seconds for a long prefix, and progress is shown between passes
POISON = -7.25
Channels = NDArray[np.int64]  # [keys], the channel of each key, -1 for none


@dataclass(frozen=True, eq=False)
class Output:
    """Of all passes."""

    weight: NDArray[
        np.float32
    ]  # [rows sent, channels], the share of each channel; NaN: the row sees nothing
    written: NDArray[np.bool_]  # [rows sent]


def passes_of(launch: Launch, channels: int, dim: int = HEAD_DIM) -> list[range]:
    """Heads of each pass."""
    heads = -(-channels // dim)
    stored = len(launch.slot_keys) + 2 * len(launch.rows.values)
    at_once = max(1, min(heads, MOST_HEADS, MOST_BYTES // (stored * dim * 4)))
    return [range(first, min(first + at_once, heads)) for first in range(0, heads, at_once)]


def run_passes(
    launch: Launch,
    runner: Runner,
    codes: tuple[Channels, ...],
    channels: int,
    device: torch.device,
    *,
    fill: int = 0,
    dim: int = HEAD_DIM,
) -> Iterator[Output]:
    """One output a pass, of the channels that it covers, in order.

    ``codes``: a key may have a channel in each of them. ``fill``: what mask cells outside the recorded buffer hold.
    """
    cells = mask_cells(launch, fill)
    for heads in passes_of(launch, channels, dim):
        first, count = heads.start * dim, len(heads) * dim
        arguments = _arguments(launch, cells, codes, first, len(heads), dim, device)
        runner.run(arguments)
        out = arguments.o_extend[: launch.rows.size].cpu().numpy()
        flat = out.reshape(launch.rows.size, count)[:, : channels - first]
        yield Output(flat, ~(flat == POISON).all(axis=1))


def _arguments(
    launch: Launch,
    cells: NDArray[np.uint8],
    codes: tuple[Channels, ...],
    first: int,
    heads: int,
    dim: int,
    device: torch.device,
) -> Arguments:
    def to(array: np.ndarray) -> Tensor:
        return torch.tensor(array, device=device)

    def values(keys: NDArray[np.int64]) -> Tensor:
        hot = np.zeros((len(keys), heads * dim), np.float32)
        for code in codes:
            channel = code[keys] - first
            there = (channel >= 0) & (channel < heads * dim) & (code[keys] >= 0)
            hot[np.flatnonzero(there), channel[there]] = 1.0
        return torch.from_numpy(hot).view(len(keys), heads, dim).to(device)

    rows, slots = launch.rows, len(launch.slot_keys)
    zeros = torch.zeros(len(rows.values), heads, dim, device=device)
    kv_indptr, kv_indices, offsets = launch.kv_indptr, launch.kv_indices, None
    if launch.window is not None:
        kv_indptr, kv_indices, skipped = windowed(launch, launch.window)
        offsets = to(skipped).to(torch.int32)
    poison = torch.full_like(zeros, POISON)
    return Arguments(
        torch.zeros(slots, heads, dim, device=device),
        values(launch.slot_keys),
        zeros[rows.front :],
        zeros[rows.front :],
        values(rows.values)[rows.front :],
        poison[rows.front :],
        to(launch.qo_indptr),
        to(kv_indptr).to(torch.int32),
        to(kv_indices.values)[kv_indices.front :],
        to(cells)[launch.custom_mask.front :],
        to(launch.mask_indptr),
        launch.max_extend_len,
        None if launch.row_slots is None else to(launch.row_slots.values)[rows.front :],
        launch.reads_prefix,
        launch.window,
        offsets,
    )


def windowed(launch: Launch, window: int) -> tuple[NDArray[np.int64], Padded, NDArray[np.int64]]:
    """The prefix as a windowed layer is given it: each request's last ``window - 1`` entries, and how many it lacks."""
    lengths = np.diff(launch.kv_indptr)
    kept = np.minimum(lengths, window - 1)
    ends = launch.kv_indptr[1:] + launch.kv_indices.front
    parts = [
        launch.kv_indices.values[end - max(count, 0) : end]
        for end, count in zip(ends.tolist(), kept.tolist(), strict=True)
    ]
    canary = np.full(launch.kv_indices.front, len(launch.slot_keys) - 2)
    entries = np.concatenate([canary, *parts, canary])
    padded = Padded(entries, len(canary), len(entries) - 2 * len(canary))
    return indptr(np.maximum(kept, 0)), padded, lengths - kept

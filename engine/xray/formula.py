"""What the address formula attends to, key by key, with the metadata taken at its word: the addressed side.

Plain loops over programs and rows, no kernel and no values. A custom mask stands for itself: no tile of keys is left
out, whatever the kernel's loop does. Windows are those of SGLang: by slot, ``q_slot - k_slot < window``.
"""

from __future__ import annotations

import numpy as np

from engine.xray.bounds import Launch
from engine.xray.keys import Keys
from engine.xray.seen import OUTSIDE, Seen


def formula(launch: Launch, keys: Keys, tile: int) -> Seen:
    """``tile``: rows of one program of the kernel; the launch grid covers whole tiles of them."""
    seen = Seen.nothing(keys)
    covered = -(-launch.max_extend_len // tile) * tile
    for program in range(launch.batch):
        start, end = (int(n) for n in launch.qo_indptr[program : program + 2])
        for row in range(start, min(end, start + covered)):
            if 0 <= row < keys.rows:
                if seen.written[row]:
                    seen.contested[row] = True
                seen.written[row] = True
                seen.times[row] = _row(launch, keys, program, row - start)
    return seen


def _row(launch: Launch, keys: Keys, program: int, row: int) -> np.ndarray:
    """How often one row of a program attends to each key, int16 [keys]."""
    first, last = (int(n) for n in launch.kv_indptr[program : program + 2])
    start, end = (int(n) for n in launch.qo_indptr[program : program + 2])
    kv_len, width = last - first, end - start
    entries = launch.kv_indices.front + np.arange(first, max(last, first))
    prefix = launch.slot_keys[launch.kv_indices.values[entries]]
    tree = launch.rows.values[launch.rows.front + np.arange(start, end)]
    base = int(launch.mask_indptr[program]) + row * (kv_len + width)
    cells = np.ones(len(prefix) + width, np.int16)
    if launch.reads_prefix:
        cells[: len(prefix)] = _read(launch, base, len(prefix))
    cells[len(prefix) :] = _read(launch, base + kv_len, width)
    if launch.window is not None:
        columns = np.arange(len(cells)) - len(prefix) + kv_len
        cells[kv_len + row - columns >= launch.window] = 0
    counts = np.zeros(keys.count, np.int16)
    reached = np.concatenate([prefix, tree])
    np.add.at(counts, reached[cells == 1], 1)
    common = int(np.gcd.reduce(counts)) if counts.any() else 1
    counts //= common  # keys that are all seen twice are as good as all seen once
    outside = reached[cells == OUTSIDE]
    counts[outside[counts[outside] == 0]] = OUTSIDE
    return counts


def _read(launch: Launch, first: int, count: int) -> np.ndarray:
    """Cells of the mask, int16: 0, 1, or OUTSIDE for those the recorded buffer does not have."""
    places = np.arange(first, first + count)
    inside = (places >= 0) & (places < launch.custom_mask.size)
    cells = np.full(count, OUTSIDE, np.int16)
    cells[inside] = launch.custom_mask.values[launch.custom_mask.front + places[inside]] & 1
    return cells

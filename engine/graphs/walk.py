"""The acceptance walk and the KV compaction on the device: which rows the target chose, and their memory moved up.

Greedy: a row's choice is an argmax, made before. Covered: any tree of :mod:`engine.decoding.device_tree`, padded
batches. Not covered: duplicate siblings, which no builder here makes (the walk over links takes the first of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.graphs.layout import BatchState, Layout

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twins serve
    triton = None
else:
    from engine.graphs import walk_kernel as kernels

COMPACT_BLOCK = 256  # numbers of a slot that one program moves


@dataclass(frozen=True, eq=False)
class Walked:
    """Accepted paths of a captured batch; a padded request has length 0."""

    path: Tensor  # int64 [captured, steps]: accepted nodes, the root first; -1 padded
    accept_length: Tensor  # int64 [captured], root included
    bonus: Tensor  # int64 [captured]
    emitted: Tensor  # int64 [captured, steps]: accepted tokens without the root's, then the bonus token; -1 padded
    commit_rows: Tensor  # int64 [captured, steps]: flat row of each accepted node; 0 padded
    commit_slots: Tensor  # int64 [captured, steps]: where its memory goes; the padding slot padded
    commit_positions: Tensor  # int64 [captured, steps]; 0 padded

    @classmethod
    def empty(cls, captured: int, steps: int, device: torch.device) -> Walked:
        """Buffers for paths of at most ``steps`` nodes."""
        ints = partial(torch.zeros, dtype=torch.int64, device=device)
        wide = partial(ints, captured, steps)
        return cls(wide(), ints(captured), ints(captured), wide(), wide(), wide(), wide())


def walk_on_device(
    tree: TreeTensors, predict: Tensor, layout: Layout, state: BatchState, out: Walked
) -> None:
    """Fill ``out`` from the rows' choices ``predict`` int64 [captured * q_len]. No tree is deeper than its steps."""
    run = walk_triton if predict.is_cuda and triton is not None else walk_torch
    run(tree, predict, layout, state, out)


def walk_triton(
    tree: TreeTensors, predict: Tensor, layout: Layout, state: BatchState, out: Walked
) -> None:
    """:func:`walk_on_device` by the kernel."""
    steps = out.path.shape[1]
    kernels.walk_trees[(layout.captured,)](
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.visible,
        tree.counts,
        predict,
        layout.out_cache_loc,
        state.seq_lens,
        state.raw_bs,
        out.path,
        out.accept_length,
        out.bonus,
        out.emitted,
        out.commit_rows,
        out.commit_slots,
        out.commit_positions,
        layout.q_len,
        steps,
        NODES=triton.next_power_of_2(layout.q_len),
        COLUMNS=min(32, triton.next_power_of_2(layout.q_len)),
        STEPS=triton.next_power_of_2(steps),
        num_warps=4,
    )


def walk_torch(
    tree: TreeTensors, predict: Tensor, layout: Layout, state: BatchState, out: Walked
) -> None:
    """:func:`walk_on_device` in plain torch, from node to node."""
    q_len, live = layout.q_len, int(state.raw_bs)
    chosen = predict.view(layout.captured, q_len).tolist()
    for buffer, padding in ((out.path, -1), (out.emitted, -1)):
        buffer.fill_(padding)
    for buffer in (out.accept_length, out.bonus, out.commit_rows, out.commit_slots):
        buffer.zero_()
    out.commit_positions.zero_()
    for request in range(live):
        tokens, parents = tree.tokens[request].tolist(), tree.parents[request].tolist()
        path = [0]
        for node in range(1, int(tree.counts[request])):
            if parents[node] == path[-1] and tokens[node] == chosen[request][path[-1]]:
                path.append(node)
        count, first = len(path), request * q_len
        places = torch.tensor(path, device=predict.device)
        bonus = chosen[request][path[-1]]
        said = [*(tokens[node] for node in path[1:]), bonus]
        out.path[request, :count] = places
        out.accept_length[request], out.bonus[request] = count, bonus
        out.emitted[request, :count] = torch.tensor(said, device=predict.device)
        out.commit_rows[request, :count] = first + places
        out.commit_slots[request, :count] = layout.out_cache_loc[first : first + count]
        start = int(state.seq_lens[request])
        out.commit_positions[request, :count] = torch.arange(
            start, start + count, device=predict.device
        )


def compact_on_device(k_pool: Tensor, v_pool: Tensor, layout: Layout, walked: Walked) -> None:
    """Move the accepted rows' memory to the first slots of their request; pools [layers, slots, kv_heads, head_dim]."""
    run = compact_triton if k_pool.is_cuda and triton is not None else compact_torch
    run(k_pool, v_pool, layout, walked)


def compact_triton(k_pool: Tensor, v_pool: Tensor, layout: Layout, walked: Walked) -> None:
    """:func:`compact_on_device` by the kernel; pools contiguous."""
    steps, width = walked.path.shape[1], k_pool[0, 0].numel()
    grid = (k_pool.shape[0], layout.captured, 2 * triton.cdiv(width, COMPACT_BLOCK))
    kernels.compact_pools[grid](
        k_pool,
        v_pool,
        layout.out_cache_loc,
        walked.path,
        walked.commit_slots,
        walked.accept_length,
        layout.q_len,
        steps,
        width,
        k_pool.stride(0),
        STEPS=triton.next_power_of_2(steps),
        BLOCK=COMPACT_BLOCK,
        num_warps=4,
    )


def compact_torch(k_pool: Tensor, v_pool: Tensor, layout: Layout, walked: Walked) -> None:
    """:func:`compact_on_device` in plain torch."""
    for request, count in enumerate(walked.accept_length.tolist()):
        source = layout.out_cache_loc[request * layout.q_len + walked.path[request, :count]]
        target = walked.commit_slots[request, :count]
        for pool in (k_pool, v_pool):
            pool[:, target] = pool[:, source]

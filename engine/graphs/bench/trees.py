"""Tree building, the walk and the compaction on the device, beside the host's heap."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from engine.decoding.best_first import build_trees
from engine.decoding.device_tree import TreeTensors, grow_on_device
from engine.graphs.bench.timing import replayed, waited
from engine.graphs.candidates import best_tokens
from engine.graphs.layout import BatchState, Layout
from engine.graphs.walk import Walked, compact_on_device, walk_on_device

VOCAB, LENGTH, BUDGET = 151_936, 15, 64
POOLS = ((30, 3, 64), (32, 8, 128))  # layers, kv_heads, head_dim
WALK_BATCH = 8


def measure_building(batch: int) -> dict[str, Any]:
    """Microseconds from logits bfloat16 [batch, 15, 151936] to trees of 64 nodes: on the device, by the host's heap."""
    generator = torch.Generator(device="cuda").manual_seed(batch)
    logits = torch.randn(
        batch, LENGTH, VOCAB, generator=generator, device="cuda", dtype=torch.bfloat16
    ).mul_(3)
    roots = torch.arange(batch, device="cuda")

    def candidates() -> tuple[torch.Tensor, torch.Tensor]:
        log_probs, tokens = best_tokens(logits.view(-1, VOCAB), BUDGET)
        return log_probs.view(batch, LENGTH, -1), tokens.view(batch, LENGTH, -1)

    found = candidates()
    host = roots.tolist()
    wanted = build_trees(logits, host, BUDGET)
    built = grow_on_device(*found, roots, BUDGET)
    same = sum(
        built.tokens[i].tolist() == each.tree.tokens.tolist()
        and built.parents[i].tolist() == each.tree.parents.tolist()
        for i, each in enumerate(wanted)
    )
    device = replayed([lambda: grow_on_device(*candidates(), roots, BUDGET)])
    heap = waited(lambda: build_trees(logits, host, BUDGET))
    return {
        "batch": batch,
        "device_us": device,
        "best_tokens_us": replayed([candidates]),
        "grow_us": replayed([lambda: grow_on_device(*found, roots, BUDGET)]),
        "host_us": heap,
        "ratio": heap / device,
        "same_trees": same,
    }


def measure_walk() -> dict[str, Any]:
    """The walk over 8 trees of 64 nodes, and the compaction of two pools after it; microseconds."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    shape = (WALK_BATCH, LENGTH, 512)
    log_probs = torch.randn(
        shape, generator=generator, device="cuda", dtype=torch.float64
    ).log_softmax(-1)
    log_probs, tokens = log_probs.sort(-1, descending=True)
    state = BatchState.empty(WALK_BATCH, torch.device("cuda"))
    state.raw_bs.fill_(WALK_BATCH)
    state.seq_lens.fill_(1000)
    tree = grow_on_device(log_probs, tokens, state.roots, BUDGET)
    q_len, steps = BUDGET + 1, LENGTH + 1
    room = 1000 + q_len
    table = 1 + torch.arange(WALK_BATCH * room, device="cuda", dtype=torch.int32).view(
        WALK_BATCH, -1
    )
    state.request_rows.copy_(torch.arange(WALK_BATCH, device="cuda"))
    layout = Layout(WALK_BATCH, q_len, table)
    layout.prefixes(state)
    layout.rows(state, tree)
    predict = _along_deepest(tree)
    walked = Walked.empty(WALK_BATCH, steps, torch.device("cuda"))
    walk = replayed([lambda: walk_on_device(tree, predict, layout, state, walked)])
    row: dict[str, Any] = {
        "batch": WALK_BATCH,
        "walk_us": walk,
        "accepted": walked.accept_length.tolist(),
    }
    for layers, heads, dim in POOLS:
        k_pool, v_pool = torch.zeros(
            (2, layers, 1 + table.numel(), heads, dim), dtype=torch.bfloat16, device="cuda"
        )
        move = partial(compact_on_device, k_pool, v_pool, layout, walked)
        row[f"compact_{layers}x{heads}x{dim}_us"] = replayed([move])
    return row


def _along_deepest(tree: TreeTensors) -> torch.Tensor:
    """Choices of all rows that accept a deepest node of each tree; int64 [rows]."""
    predict = torch.full_like(tree.tokens, -1)
    for request, depths in enumerate(tree.depths.tolist()):
        node = max(range(len(depths)), key=depths.__getitem__)
        while node > 0:
            parent = int(tree.parents[request, node])
            predict[request, parent] = tree.tokens[request, node]
            node = parent
    return predict.flatten()

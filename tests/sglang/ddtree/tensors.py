"""Trees as tensors, made node by node from their root paths; shares no code with the builders."""

from __future__ import annotations

import torch

from engine.decoding.device_tree import TreeTensors
from engine.oracle import Oracle
from engine.tree import DraftTree
from tests.factories import clean_step


def tensors(trees: list[DraftTree], budget: int) -> TreeTensors:
    """Trees of ``budget + 1`` rows, padded as the device builder pads."""
    nodes = budget + 1
    made = {n: torch.zeros(len(trees), nodes, dtype=torch.int64) for n in ("t", "d", "r")}
    made |= {n: torch.full((len(trees), nodes), -1) for n in ("p", "c", "s")}
    visible = torch.eye(nodes, dtype=torch.int8).repeat(len(trees), 1, 1)
    weights = torch.zeros(len(trees), nodes, dtype=torch.float64)
    oracle = Oracle(clean_step(trees, [1] * len(trees), budget=budget))
    for i, tree in enumerate(trees):
        own = slice(0, tree.num_nodes)
        made["p"][i, own], made["t"][i, own] = (
            torch.tensor(x) for x in (tree.parents, tree.tokens)
        )
        made["d"][i, own] = torch.tensor(tree.depths)
        made["c"][i, own], made["s"][i, own] = (torch.from_numpy(x) for x in oracle.links(i))
        if tree.log_weights is not None:
            weights[i, own] = torch.tensor(tree.log_weights)
        for node, path in enumerate(tree.paths):
            visible[i, node, list(path)] = 1
    counts = torch.tensor([tree.num_nodes for tree in trees])
    return TreeTensors(
        made["p"], made["t"], made["d"], made["r"], weights, made["c"], made["s"], visible, counts
    )  # fmt: skip

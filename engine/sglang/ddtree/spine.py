"""The tree of a batch from its candidates, with the spine where it is asked for.

The device builder knows no spine. With one, the tree is the spine's nodes and the first of the search's other nodes, as
many as are left: the search finds them all in its own ``budget`` nodes, since at most the spine's length of those are
spine nodes. Nodes are numbered by weight, equal ones by the tuple of ranks, as in ``decoding.best_first.grow``: a spine
node's tuple is all zeros and so never larger than another's of the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors, grow_on_device
from engine.sglang.ddtree.options import Options


def build_trees(log_probs: Tensor, tokens: Tensor, roots: Tensor, options: Options) -> TreeTensors:
    """Trees of ``options.target_width`` rows a request.

    ``log_probs`` float64 and ``tokens`` int64 [bs, block_size - 1, candidates], descending; ``roots`` int64 [bs].
    """
    trees = grow_on_device(log_probs, tokens, roots, options.budget, options.candidates)
    return with_spine(trees, log_probs, tokens) if options.spine else trees


@dataclass(frozen=True, eq=False)
class _Listed:
    """Nodes in a new order, [bs, spine + old nodes] before they are cut."""

    weights: Tensor  # float64; -inf where there is no node
    depths: Tensor  # int64
    ranks: Tensor  # int64
    tokens: Tensor  # int64
    parents: Tensor  # int64, numbers in this list; the root is -1


def with_spine(trees: TreeTensors, log_probs: Tensor, tokens: Tensor) -> TreeTensors:
    """``trees`` with the chain of best tokens in them, as long as it is or as the budget allows."""
    nodes = trees.tokens.shape[1]
    length = min(log_probs.shape[1], nodes - 1)
    listed = _listed(trees, log_probs[:, :length, 0], tokens[:, :length, 0])
    rest = listed.weights[:, 1:].argsort(dim=1, descending=True, stable=True) + 1
    order = torch.cat([torch.zeros_like(rest[:, :1]), rest], dim=1)[:, :nodes]
    number = torch.zeros_like(listed.parents)
    number.scatter_(1, order, torch.arange(nodes, device=order.device).expand_as(order))
    weights = listed.weights.gather(1, order)
    real = weights > -torch.inf
    above = listed.parents.gather(1, order)
    parents = torch.where(above < 0, -1, number.gather(1, above.clamp(min=0)))
    parents = parents.masked_fill(~real, -1)

    def taken(values: Tensor) -> Tensor:
        return values.gather(1, order).masked_fill(~real, 0)

    child, sibling = links(parents)
    return TreeTensors(
        parents,
        taken(listed.tokens),
        taken(listed.depths),
        taken(listed.ranks),
        weights.masked_fill(~real, 0.0),
        child,
        sibling,
        closure(parents, length),
        real.sum(dim=1),
    )


def _listed(trees: TreeTensors, best: Tensor, best_tokens: Tensor) -> _Listed:
    """Root, spine, and the search's other nodes as far as the budget goes; number ``d`` is the spine's depth d."""
    batch, nodes = trees.tokens.shape
    length, device = best.shape[1], best.device
    steps = torch.arange(1, length + 1, device=device).expand(batch, -1)
    weight = best.cumsum(dim=1).cummin(dim=1).values  # a parent never weighs less than its child
    weight = weight.masked_fill(~best.isfinite().cumprod(dim=1).bool(), -torch.inf)
    branched = (trees.visible.bool() & (trees.ranks > 0)[:, None, :]).any(dim=-1)
    node = torch.arange(nodes, device=device)
    other = branched & (node < trees.counts[:, None])
    left = nodes - 1 - (weight > -torch.inf).sum(dim=1, keepdim=True)
    other = other & (other.cumsum(dim=1) <= left)
    old = torch.where(other, trees.log_weights, -torch.inf)
    above = trees.parents.clamp(min=0)
    on_spine = ~branched.gather(1, above)
    parents = torch.where(on_spine, trees.depths.gather(1, above), length + above)
    return _Listed(
        torch.cat([torch.zeros_like(old[:, :1]), weight, old[:, 1:]], dim=1),
        torch.cat([torch.zeros_like(steps[:, :1]), steps, trees.depths[:, 1:]], dim=1),
        torch.cat(
            [torch.zeros_like(trees.ranks[:, :1].expand(-1, length + 1)), trees.ranks[:, 1:]], 1
        ),
        torch.cat([trees.tokens[:, :1], best_tokens, trees.tokens[:, 1:]], dim=1),
        torch.cat([torch.full_like(steps[:, :1], -1), steps - 1, parents[:, 1:]], dim=1),
    )


def closure(parents: Tensor, depth: int) -> Tensor:
    """Which nodes lie on each node's root path, itself included: int8 [bs, nodes, nodes] of ``parents`` [bs, nodes].

    Squares "itself or its parent" until it spans ``depth`` steps.
    """
    nodes = parents.shape[1]
    reach = torch.eye(nodes, device=parents.device).repeat(len(parents), 1, 1)
    up = torch.zeros_like(reach).scatter_(2, parents.clamp(min=0)[:, :, None], 1.0)
    reach = (reach + up.masked_fill((parents < 0)[:, :, None], 0.0)).clamp(max=1.0)
    span = 1
    while span < depth:
        reach, span = (reach @ reach).clamp(max=1.0), 2 * span
    return reach.to(torch.int8)


def links(parents: Tensor) -> tuple[Tensor, Tensor]:
    """First child and next sibling of each node, int64 [bs, nodes], -1 for none."""
    nodes = parents.shape[1]
    node = torch.arange(nodes, device=parents.device)
    below = parents[:, None, :] == node[None, :, None]  # [bs, parent, child]
    child = torch.where(below, node, nodes).amin(dim=2)
    same = (parents[:, :, None] == parents[:, None, :]) & (parents >= 0)[:, :, None]
    sibling = torch.where(same & (node[None, None, :] > node[None, :, None]), node, nodes).amin(
        dim=2
    )
    return child.masked_fill(child == nodes, -1), sibling.masked_fill(sibling == nodes, -1)

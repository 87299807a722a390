"""Where the nodes of a draft tree are drawn: depth to the right, leaves below each other.

Leaves take one line each in the order of a walk that visits the accepted child first, so the
accepted path runs along the top; an inner node stands level with its first child. Nodes that never
reach the root are not placed.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from engine.tree import ROOT, DraftTree

Places = dict[int, tuple[float, float]]
BONUS = -1  # stands for the bonus token, which is no node of the tree


def as_graph(tree: DraftTree) -> nx.DiGraph:
    """Nodes that reach the root, with their edges."""
    graph = nx.DiGraph()
    placed = [node for node in range(tree.num_nodes) if tree.paths[node]]
    graph.add_nodes_from(placed)
    graph.add_edges_from((int(tree.parents[node]), node) for node in placed if node != ROOT)
    return graph


def place(tree: DraftTree, first: Sequence[int] = (), *, with_bonus: bool = False) -> Places:
    """``node -> (depth, line)``, line 0 at the top. ``first``: nodes visited before their siblings.

    ``with_bonus``: :data:`BONUS` goes on after the last of ``first``, before that node's children.
    """
    graph = as_graph(tree)
    walk = nx.DiGraph()
    walk.add_nodes_from(graph)
    for node in graph:
        below = sorted(graph.successors(node), key=lambda child: (child not in first, child))
        walk.add_edges_from((node, child) for child in _with_bonus(node, below, first, with_bonus))
    lines: dict[int, float] = {}
    line = 0
    for node in nx.dfs_preorder_nodes(walk, ROOT) if graph else ():
        lines[node] = line
        line += walk.out_degree(node) == 0
    depths = {node: float(tree.depths[node]) for node in graph}
    if BONUS in lines:
        depths[BONUS] = depths[first[-1]] + 1
    return {node: (depths[node], float(lines[node])) for node in lines}


def _with_bonus(node: int, below: list[int], first: Sequence[int], with_bonus: bool) -> list[int]:
    return [BONUS, *below] if with_bonus and first and node == first[-1] else below


def unplaced(tree: DraftTree) -> list[int]:
    """Nodes in a cycle or with a parent outside the tree."""
    return [node for node in range(tree.num_nodes) if not tree.paths[node]]

"""Where the nodes of a draft tree are drawn: depth to the right, leaves below each other.

Leaves take one line each in the order of a walk that visits the accepted child first, so the accepted path runs along
the top; an inner node stands level with its first child. Nodes that never reach the root are not placed.
"""

from __future__ import annotations

from collections.abc import Collection

import networkx as nx

from engine.tree import ROOT, DraftTree

Places = dict[int, tuple[float, float]]


def as_graph(tree: DraftTree) -> nx.DiGraph:
    """Nodes that reach the root, with their edges."""
    graph = nx.DiGraph()
    placed = [node for node in range(tree.num_nodes) if tree.paths[node]]
    graph.add_nodes_from(placed)
    graph.add_edges_from((int(tree.parents[node]), node) for node in placed if node != ROOT)
    return graph


def place(tree: DraftTree, first: Collection[int] = ()) -> Places:
    """``node -> (depth, line)``, line 0 at the top. ``first``: nodes visited before their siblings."""
    graph = as_graph(tree)
    walk = nx.DiGraph()
    walk.add_nodes_from(graph)
    for node in graph:
        below = sorted(graph.successors(node), key=lambda child: (child not in first, child))
        walk.add_edges_from((node, child) for child in below)
    lines: dict[int, float] = {}
    line = 0
    for node in nx.dfs_preorder_nodes(walk, ROOT) if graph else ():
        lines[node] = line
        line += walk.out_degree(node) == 0
    return {node: (float(tree.depths[node]), float(lines[node])) for node in lines}


def unplaced(tree: DraftTree) -> list[int]:
    """Nodes in a cycle or with a parent outside the tree."""
    return [node for node in range(tree.num_nodes) if not tree.paths[node]]

"""What a tree of another budget would have accepted, from the drafter's marginals and the text that followed.

Nodes of a best-first tree come in the order of their weight, and a smaller budget's tree is the beginning of a larger
one's. So one walk over the largest tree answers for every budget: a node is in the tree of budget B if its number is
at most B. Not covered: other caps on the ranks, which need a tree of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.best_first import BuiltTree


def walked_nodes(built: BuiltTree, following: Sequence[int]) -> list[int]:
    """Nodes below the root along the tokens that followed it, as far as the tree goes."""
    tree, path = built.tree, [0]
    for token in following:
        below = tree.children[path[-1]]
        child = next((node for node in below if int(tree.tokens[node]) == token), None)
        if child is None:
            break
        path.append(child)
    return path[1:]


def accepted_length(nodes: Sequence[int], budget: int) -> int:
    """Tokens that a step of that budget would have emitted, the bonus included."""
    return 1 + sum(node <= budget for node in nodes)

"""The draft tree, as every other module speaks of it.

Node 0 is the *root*: the bonus token of the step before. It belongs to the tree and not to the budget. A tree
that comes from a recording may be malformed; this module only describes it. :func:`validate` raises, the checks
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.lazy import lazy

ROOT = 0


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A tree of draft tokens in node order (a parent's number is smaller than its child's).

    Example: ``parents [-1, 0, 0, 2]`` is a root with children 1 and 2, and node 3 below node 2.
    """

    parents: NDArray[np.int64]  # [num_nodes], parents[0] == -1
    tokens: NDArray[np.int64]  # [num_nodes], tokens[0] is the bonus token of the step before
    log_weights: NDArray[np.float64] | None = (
        None  # [num_nodes], log-probability of the whole path, 0.0 at the root
    )

    @property
    def num_nodes(self) -> int:
        """Nodes with the root."""
        return len(self.parents)

    @lazy
    def depths(self) -> NDArray[np.int64]:
        """Depth of each node, int64 [num_nodes]; the root's is 0, a node that never reaches the root has -1."""
        return np.array([len(path) - 1 for path in self.paths], dtype=np.int64)

    @lazy
    def height(self) -> int:
        """Depth of the deepest node that reaches the root."""
        return max(map(len, self.paths), default=1) - 1

    @lazy
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Root path of each node, itself last; empty for a node in a cycle or with a parent outside the tree."""
        parents: list[int] = self.parents.tolist()
        paths: list[tuple[int, ...]] = []
        for node, parent in enumerate(parents):
            if 0 <= parent < node and paths[parent]:
                paths.append((*paths[parent], node))
            else:
                paths.append(_climb(parents, node))
        return tuple(paths)

    @lazy
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node in node order."""
        parents: list[int] = self.parents.tolist()
        below: list[list[int]] = [[] for _ in parents]
        for node, parent in enumerate(parents):
            if node != ROOT and 0 <= parent < len(below):
                below[parent].append(node)
        return tuple(map(tuple, below))


def _climb(parents: list[int], node: int) -> tuple[int, ...]:
    """From a node to the root, whatever the order of nodes."""
    path = [node]
    while node != ROOT:
        node = parents[node]
        if not 0 <= node < len(parents) or len(path) > len(parents):
            return ()
        path.append(node)
    path.reverse()
    return tuple(path)


def make_tree(
    parents: Sequence[int], tokens: Sequence[int], log_weights: Sequence[float] | None = None
) -> DraftTree:
    """Build a tree from plain sequences of equal length and validate it."""
    weights = None if log_weights is None else np.asarray(log_weights, dtype=np.float64)
    tree = DraftTree(np.asarray(parents, np.int64), np.asarray(tokens, np.int64), weights)
    validate(tree)
    return tree


def chain(tokens: Sequence[int], log_weights: Sequence[float] | None = None) -> DraftTree:
    """Tree without branches: ``tokens[0]`` is the root, each token the child of the one before."""
    return make_tree(range(-1, len(tokens) - 1), tokens, log_weights)


def validate(tree: DraftTree) -> None:
    """Raise ``ValueError`` unless node 0 is the only root and every parent comes before its child."""
    for name, array in (("tokens", tree.tokens), ("log_weights", tree.log_weights)):
        if array is not None and len(array) != tree.num_nodes:
            raise ValueError(
                f"tree.{name}: expected {tree.num_nodes} entries (as parents), found {len(array)}"
            )
    if tree.num_nodes == 0 or tree.parents[0] != -1:
        raise ValueError(
            "tree.parents[0]: expected -1 (the root), found " + str(tree.parents[:1].tolist())
        )
    for node in range(1, tree.num_nodes):
        if not 0 <= tree.parents[node] < node:
            raise ValueError(
                f"tree.parents[{node}]: expected a node in 0 … {node - 1}, found {int(tree.parents[node])}"
            )

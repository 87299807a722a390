"""pytest tests/engine/test_tree.py"""

import numpy as np
import pytest
from hypothesis import given

from engine.tree import DraftTree, chain, make_tree
from tests.factories import trees


def test_depths_paths_and_children_of_a_literal_tree() -> None:
    tree = make_tree([-1, 0, 0, 2], [5, 9, 12, 30])
    assert tree.depths.tolist() == [0, 1, 1, 2]
    assert tree.paths == ((0,), (0, 1), (0, 2), (0, 2, 3))
    assert tree.children == ((1, 2), (), (3,), ())


def test_chain() -> None:
    assert chain([7, 8, 9]).parents.tolist() == [-1, 0, 1]


@given(trees())
def test_a_depth_is_one_more_than_the_parents(tree: DraftTree) -> None:
    for node in range(1, tree.num_nodes):
        assert tree.depths[node] == tree.depths[tree.parents[node]] + 1
        assert tree.paths[node][:-1] == tree.paths[int(tree.parents[node])]


@pytest.mark.parametrize("parents", [[-1, 2, 1], [-1, 7], [-1, -2], [-1, 1]])
def test_nodes_that_never_reach_the_root_have_no_path(parents: list[int]) -> None:
    tree = DraftTree(np.array(parents), np.zeros(len(parents), np.int64))
    assert tree.depths[1] == -1
    assert tree.paths[1] == ()


@pytest.mark.parametrize(
    ("parents", "tokens", "message"),
    [
        ([-1, 1], [0, 0], r"tree\.parents\[1\]: expected a node in 0 … 0, found 1"),
        ([0], [0], r"tree\.parents\[0\]: expected -1"),
        ([-1, 0], [0], r"tree\.tokens: expected 2 entries \(as parents\), found 1"),
        ([], [], r"tree\.parents\[0\]"),
    ],
)
def test_malformed_trees_are_named(parents: list[int], tokens: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_tree(parents, tokens)

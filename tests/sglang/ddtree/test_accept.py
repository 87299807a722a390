"""The walk without a loop against the oracle's walk and the host engine's."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.accept import walk
from engine.decoding.metadata import build_links
from engine.oracle import walk_tree
from engine.sglang.ddtree.accept import accept
from engine.tree import DraftTree, make_tree
from tests.factories import VOCAB, trees
from tests.sglang.ddtree.tensors import tensors


def test_literal() -> None:
    """Root 5; children 9 and 12; 30 below 12. The target says 12, then 30, then 41."""
    tree = make_tree([-1, 0, 0, 2], [5, 9, 12, 30])
    found = accept(tensors([tree], 4), torch.tensor([[12, 1, 30, 41, 12]]), steps=4)
    assert found.path.tolist() == [[0, 2, 3, -1]]
    assert found.said.tolist() == [[12, 30, 41, -1]]
    assert found.accept_length.tolist() == [3]


def test_a_node_below_a_rejected_one_is_not_accepted() -> None:
    tree = make_tree([-1, 0, 1], [5, 9, 30])
    found = accept(tensors([tree], 2), torch.tensor([[8, 30, 1]]), steps=3)
    assert found.path.tolist() == [[0, -1, -1]]
    assert found.said.tolist() == [[8, -1, -1]]


def test_padding_is_not_accepted_though_its_token_is_what_the_root_says() -> None:
    tree = make_tree([-1], [5])
    found = accept(tensors([tree], 3), torch.zeros(1, 4, dtype=torch.int64), steps=2)
    assert found.accept_length.tolist() == [1]
    assert found.said.tolist() == [[0, -1]]


def test_token_zero_is_a_token() -> None:
    tree = make_tree([-1, 0], [5, 0])
    found = accept(tensors([tree], 1), torch.tensor([[0, 7]]), steps=2)
    assert found.said.tolist() == [[0, 7]]


@given(st.lists(trees(), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 2**16))
def test_paths_are_the_oracles(batch: list[DraftTree], spare: int, seed: int) -> None:
    budget = max(tree.num_nodes for tree in batch) - 1 + spare
    rng = np.random.default_rng(seed)
    predict = rng.integers(0, VOCAB, (len(batch), budget + 1))
    for i, tree in enumerate(batch):  # mostly what some child proposes, so that walks go somewhere
        for node, children in enumerate(tree.children):
            if children and rng.random() < 0.9:
                predict[i, node] = tree.tokens[rng.choice(children)]
    steps = max(tree.height for tree in batch) + 1
    found = accept(tensors(batch, budget), torch.from_numpy(predict), steps)
    links = build_links(batch, budget + 1)
    for i, tree in enumerate(batch):
        count = int(found.accept_length[i])
        path = found.path[i, :count].tolist()
        assert path == walk_tree(tree, predict[i])
        children, siblings = (
            x[i].tolist() for x in (links.retrieve_next_token, links.retrieve_next_sibling)
        )
        tokens = [*tree.tokens.tolist(), *[0] * (budget + 1 - tree.num_nodes)]
        assert path == walk(children, siblings, tokens, predict[i].tolist())
        said = [*(int(tree.tokens[node]) for node in path[1:]), int(predict[i, path[-1]])]
        assert found.said[i, :count].tolist() == said
        assert found.path[i, count:].eq(-1).all()
        assert found.said[i, count:].eq(-1).all()

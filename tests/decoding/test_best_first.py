"""The builder against an exhaustive search over all prefixes."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.best_first import build_tree, top_candidates


def exhaustive(logits: torch.Tensor, budget: int, topk: int | None) -> list[tuple[int, ...]]:
    """Token prefixes in the order of the definition: by weight, then by the tuple of ranks."""
    log_probs = torch.log_softmax(logits.double(), dim=-1).clamp(max=0.0).tolist()
    order = [sorted(range(len(row)), key=lambda t, row=row: (-row[t], t)) for row in log_probs]
    width = min(len(log_probs[0]), budget if topk is None else topk)
    everything = []
    for depth in range(1, len(log_probs) + 1):
        for ranks in itertools.product(range(width), repeat=depth):
            tokens = tuple(order[d][r] for d, r in enumerate(ranks))
            weight = 0.0
            for d, token in enumerate(tokens):
                weight += log_probs[d][token]
            if math.isfinite(weight):
                everything.append((-weight, ranks, tokens))
    return [tokens for _, _, tokens in sorted(everything)[:budget]]


def prefixes(tree, root: int) -> list[tuple[int, ...]]:
    assert tree.tokens[0] == root
    return [tuple(tree.tokens[list(path[1:])].tolist()) for path in tree.paths[1:]]


@given(
    st.integers(1, 3),
    st.integers(2, 5),
    st.integers(1, 12),
    st.sampled_from([None, 1, 2, 4]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_nodes_and_order_equal_an_exhaustive_search(
    horizon, vocab, budget, topk, seed, ties
) -> None:
    generator = torch.Generator().manual_seed(seed)
    if ties:
        logits = torch.randint(0, 2, (horizon, vocab), generator=generator).float()
    else:
        logits = torch.randn(horizon, vocab, generator=generator)
    built = build_tree(logits, 9, budget, topk)
    assert prefixes(built.tree, 9) == exhaustive(logits, budget, topk)
    weights = built.tree.log_weights
    assert weights is not None
    assert (np.diff(weights) <= 0).all()


def test_a_literal_tree() -> None:
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    tree = build_tree(probs.log(), 7, 4).tree
    # 0: .6, then 0-1: .42, then 1: .3, then 1-1: .21
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3]
    assert tree.tokens.tolist() == [7, 0, 1, 1, 1]
    assert np.exp(tree.log_weights) == pytest.approx([1, 0.6, 0.42, 0.3, 0.21])


def test_ranks_say_how_the_drafter_rated_each_node() -> None:
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    assert build_tree(probs.log(), 7, 4).ranks.tolist() == [0, 0, 0, 1, 0]


def test_parent_and_child_of_equal_weight_keep_their_order() -> None:
    certain = torch.tensor([[200.0, 0.0], [200.0, 0.0], [200.0, 0.0]])  # log-probability exactly 0
    assert build_tree(certain, 0, 3).tree.parents.tolist() == [-1, 0, 1, 2]


def test_tokens_that_cannot_be_drafted_never_become_nodes() -> None:
    inf = float("inf")
    logits = torch.tensor([[1.0, -inf, 0.5], [-inf, -inf, -inf]])
    tree = build_tree(logits, 0, 10).tree
    assert tree.parents.tolist() == [-1, 0, 0]
    assert tree.tokens.tolist() == [0, 0, 2]


def test_equal_logits_rank_by_token_id_even_at_the_cut() -> None:
    logits = torch.zeros(1, 100)
    logits[0, 90] = 1.0
    assert top_candidates(logits, 3).tokens.tolist() == [[90, 0, 1]]


def test_top_1_is_a_chain_no_longer_than_the_block() -> None:
    tree = build_tree(torch.randn(7, 50), 3, 16, topk=1).tree
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("budget", "topk"), [(-1, None), (4, 0)])
def test_impossible_settings_are_named(budget: int, topk: int | None) -> None:
    with pytest.raises(ValueError, match="expected budget >= 0 and topk >= 1, found budget"):
        build_tree(torch.zeros(2, 5), 0, budget, topk)


def options(logits: torch.Tensor, budget: int, topk, max_depth, spine) -> list[tuple[int, ...]]:
    """The definition of the options: the spine takes its nodes first, the best others follow, all by weight."""
    kept = logits[:max_depth]
    everything = exhaustive(kept, 10**6, min(topk or budget, logits.shape[1]))
    best = exhaustive(kept, len(kept), 1)[:budget] if spine else []
    chosen = {*best, *[path for path in everything if path not in best][: budget - len(best)]}
    return [path for path in everything if path in chosen]


@given(
    st.integers(1, 4),
    st.integers(2, 4),
    st.integers(1, 10),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1, 2, 9]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_caps_and_spine_equal_their_definition(
    horizon, vocab, budget, topk, max_depth, spine, seed
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(horizon, vocab, generator=generator)
    built = build_tree(logits, 9, budget, topk, max_depth=max_depth, spine=spine)
    assert prefixes(built.tree, 9) == options(logits, budget, topk, max_depth, spine)
    assert (np.diff(built.tree.log_weights) <= 0).all()
    assert (built.tree.parents[1:] < np.arange(1, built.tree.num_nodes)).all()


def test_a_spine_that_the_search_alone_would_not_find() -> None:
    flat = torch.zeros(4, 50)
    chain = build_tree(flat, 9, 6, spine=True).tree
    assert max(len(path) for path in chain.paths) == 5
    assert max(len(path) for path in build_tree(flat, 9, 6).tree.paths) == 2


def test_candidates_are_kept_whatever_the_caps() -> None:
    built = build_tree(torch.randn(3, 50), 9, 4, 2, max_depth=1, kept=10)
    assert built.candidates.tokens.shape == (3, 10)
    assert max(built.ranks) < 2

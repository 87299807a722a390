"""Trees with a spine against the host's builder; closures and links against the oracle."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.best_first import Candidates, grow
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.spine import build_trees, closure, links
from engine.tree import DraftTree, make_tree
from tests.factories import trees
from tests.sglang.ddtree.tensors import tensors


def tables(seed: int, batch: int, length: int, width: int, grid: bool) -> tuple[torch.Tensor, ...]:
    """Log-probabilities and tokens; ``grid``: multiples of 1/4, so that weights tie exactly."""
    rng = np.random.default_rng(seed)
    drawn = (
        rng.integers(0, 6, (batch, length, width)) / -4
        if grid
        else -rng.exponential(size=(batch, length, width))
    )
    log_probs = torch.from_numpy(-np.sort(-drawn, axis=-1)).double()
    tokens = torch.from_numpy(rng.permuted(np.tile(np.arange(50), (batch * length, 1)), axis=1))
    return log_probs, tokens[:, :width].reshape(batch, length, width)


def built(seed: int, grid: bool, options: Options) -> list[tuple[DraftTree, DraftTree]]:
    width = options.candidates
    log_probs, tokens = tables(seed, 2, options.max_depth, width, grid)
    if seed % 3 == 0:
        log_probs[:, -1] = -torch.inf  # the last position cannot be drafted
    made = build_trees(log_probs, tokens, torch.tensor([7, 8]), options)
    pairs = []
    for i in range(2):
        count = int(made.counts[i])
        own = make_tree(
            made.parents[i, :count].tolist(),
            made.tokens[i, :count].tolist(),
            made.log_weights[i, :count].tolist(),
        )
        candidates = Candidates(log_probs[i].numpy(), tokens[i].numpy())
        host = grow(candidates, 7 + i, options.budget, width, spine=options.spine)
        pairs.append((own, host.tree))
        wanted = tensors([host.tree], options.budget)
        assert torch.equal(made.visible[i], wanted.visible[0])
        assert torch.equal(made.retrieve_next_token[i], wanted.retrieve_next_token[0])
        assert torch.equal(made.retrieve_next_sibling[i], wanted.retrieve_next_sibling[0])
        assert torch.equal(made.depths[i], wanted.depths[0])
        assert made.ranks[i, :count].tolist() == host.ranks.tolist()
        assert made.parents[i, count:].tolist() == [-1] * (options.target_width - count)
    return pairs


@given(
    st.integers(0, 9999), st.integers(2, 7), st.integers(1, 14), st.integers(1, 4),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_the_hosts_trees(
    seed: int, block: int, budget: int, topk: int, spine: bool, grid: bool
) -> None:
    options = Options(max(budget, block - 5), block, topk, spine)
    for own, host in built(seed, grid, options):
        assert own.parents.tolist() == host.parents.tolist()
        assert own.tokens.tolist() == host.tokens.tolist()
        assert own.log_weights is not None
        np.testing.assert_allclose(own.log_weights, host.log_weights, atol=1e-12)


def test_literal() -> None:
    """A spine of three that the search would not have taken: its best three nodes are siblings."""
    log_probs = torch.tensor(
        [[[-1.0, -1.1, -1.2], [-3.0, -3.0, -3.0], [-3.0, -3.0, -3.0]]]
    ).double()
    tokens = torch.arange(9).view(1, 3, 3)
    roots = torch.tensor([99])
    without = build_trees(log_probs, tokens, roots, Options(4, 4, 3))
    assert without.tokens.tolist() == [[99, 0, 1, 2, 3]]
    made = build_trees(log_probs, tokens, roots, Options(4, 4, 3, spine=True))
    assert made.tokens.tolist() == [[99, 0, 1, 3, 6]]
    assert made.parents.tolist() == [[-1, 0, 0, 1, 3]]
    assert made.depths.tolist() == [[0, 1, 1, 2, 3]]
    assert made.visible[0, 4].tolist() == [1, 1, 0, 1, 1]


@given(st.lists(trees(), min_size=1, max_size=3), st.integers(0, 4))
def test_closure_and_links(batch: list[DraftTree], spare: int) -> None:
    budget = max(tree.num_nodes for tree in batch) - 1 + spare
    wanted = tensors(batch, budget)
    assert torch.equal(closure(wanted.parents, budget), wanted.visible)
    child, sibling = links(wanted.parents)
    assert torch.equal(child, wanted.retrieve_next_token)
    assert torch.equal(sibling, wanted.retrieve_next_sibling)


def test_a_closure_that_spans_too_little_is_not_one() -> None:
    chain = torch.arange(-1, 7)[None]
    assert not torch.equal(closure(chain, 2), closure(chain, 7))

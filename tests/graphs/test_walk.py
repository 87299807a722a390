"""The device's walk is the one over links, and compaction leaves each accepted row's memory where it belongs.

Run: pytest tests/graphs/test_walk.py
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.decoding.accept import walk
from engine.decoding.metadata import build_links
from engine.graphs.walk import (
    Walked,
    compact_torch,
    compact_triton,
    walk_torch,
    walk_triton,
)
from tests.attention.devices import DEVICES, INTERPRETED
from tests.graphs.batches import Batch, predictions, random_batch
from tests.graphs.test_layout import lay_out

SIZES = [(1, 1, 9), (3, 2, 12), (4, 4, 1), (5, 3, 40), (2, 0, 4)]


def walked(batch: Batch, predict: Tensor, kernel: bool, steps: int = 5) -> Walked:
    lay_out(batch, kernel=False)
    out = Walked.empty(batch.layout.captured, steps, predict.device)
    for name in Walked.__dataclass_fields__:
        getattr(out, name).fill_(77)  # of a step before
    run = walk_triton if kernel else walk_torch
    run(batch.tree, predict, batch.layout, batch.state, out)
    return out


def as_over_links(batch: Batch, predict: Tensor, out: Walked) -> None:
    q_len, steps = batch.layout.q_len, out.path.shape[1]
    trees = [batch.tree_of(i) for i in range(batch.raw_bs)]
    links = build_links(trees, q_len)
    chosen = predict.view(-1, q_len).cpu().tolist()
    for i in range(batch.layout.captured):
        rows = [getattr(out, name)[i].cpu().tolist() for name in ("path", "emitted")]
        commit = [
            getattr(out, f"commit_{name}")[i].cpu().tolist()
            for name in ("rows", "slots", "positions")
        ]
        if i >= batch.raw_bs:
            assert (int(out.accept_length[i]), int(out.bonus[i])) == (0, 0)
            assert rows == [[-1] * steps] * 2
            assert commit == [[0] * steps] * 3
            continue
        tokens = trees[i].tokens.tolist()
        path = walk(
            links.retrieve_next_token[i].tolist(),
            links.retrieve_next_sibling[i].tolist(),
            tokens,
            chosen[i],
        )
        rest = steps - len(path)
        bonus, start = chosen[i][path[-1]], int(batch.state.seq_lens[i])
        slots = batch.layout.out_cache_loc[i * q_len :][: len(path)].tolist()
        assert rows[0] == path + [-1] * rest
        assert rows[1] == [*(tokens[n] for n in path[1:]), bonus] + [-1] * rest
        assert (int(out.accept_length[i]), int(out.bonus[i])) == (len(path), bonus)
        assert commit[0] == [i * q_len + n for n in path] + [0] * rest
        assert commit[1] == slots + [0] * rest
        assert commit[2] == list(range(start, start + len(path))) + [0] * rest


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", SIZES)
def test_kernel(device: str, sizes: tuple[int, int, int]) -> None:
    captured, raw_bs, budget = sizes
    lengths = set()
    for seed in range(6):
        batch = random_batch(seed, captured=captured, raw_bs=raw_bs, budget=budget, device=device)
        predict = predictions(batch, seed)
        out = walked(batch, predict, kernel=True)
        as_over_links(batch, predict, out)
        lengths |= set(out.accept_length.tolist())
    assert raw_bs == 0 or budget == 1 or len(lengths) > 2  # paths of several lengths were seen


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 20), st.floats(0, 1))
def test_twin(seed: int, captured: int, budget: int, follow: float) -> None:
    batch = random_batch(seed, captured=captured, raw_bs=captured, budget=budget)
    predict = predictions(batch, seed, follow)
    as_over_links(batch, predict, walked(batch, predict, kernel=False))


@pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1")
def test_a_child_below_a_rejected_node_is_not_accepted() -> None:
    """A grandchild whose own parent predicts it, below a node that the root does not choose."""
    batch = random_batch(1, captured=1, raw_bs=1, budget=9)
    tree = batch.tree_of(0)
    inner = next(n for n in range(1, tree.num_nodes) if (tree.parents == n).any())
    child = int((tree.parents == inner).argmax())
    predict = torch.full((10,), 99)
    predict[inner] = int(tree.tokens[child])
    for kernel in (False, True):
        out = walked(batch, predict, kernel)
        assert out.path[0].tolist() == [0, -1, -1, -1, -1]
        assert int(out.bonus[0]) == 99


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [(1, 4), (3, 100)])
def test_compaction(device: str, width: tuple[int, int]) -> None:
    for seed in range(4):
        batch = random_batch(seed, captured=4, raw_bs=3, budget=12, device=device)
        out = walked(batch, predictions(batch, seed), kernel=False)
        slots = int(batch.layout.req_to_token.max()) + 1
        held = torch.arange(2 * 3 * slots, device=device).float().view(2, 3, slots, 1, 1)
        held = held.expand(2, 3, slots, *width) + torch.arange(width[1], device=device) / 256
        results = []
        for run in (compact_triton, compact_torch):
            k_pool, v_pool = held.clone()
            run(k_pool, v_pool, batch.layout, out)
            results.append((k_pool, v_pool))
        expected = held.clone()
        for i in range(3):
            rows = batch.layout.out_cache_loc[i * 13 : (i + 1) * 13].tolist()
            for place, node in enumerate(n for n in out.path[i].tolist() if n >= 0):
                expected[:, :, rows[place]] = held[:, :, rows[node]]
        for result in results:
            assert torch.equal(torch.stack(result), expected)

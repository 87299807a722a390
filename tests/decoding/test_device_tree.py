"""Trees built on the device are the host's: kernel, torch twin and heap agree, ties included.

Run: pytest tests/decoding/test_device_tree.py
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.best_first import Candidates, grow
from engine.decoding.device_tree import TreeTensors, grow_on_device, grow_torch
from engine.oracle import Oracle
from engine.step import Request, TreeRecord, VerifyStep

grow_triton = pytest.importorskip("engine.decoding.device_tree").grow_triton
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BUILDERS = [
    pytest.param(grow_torch, "cpu", id="torch"),
    pytest.param(
        grow_triton,
        "cpu",
        id="kernel",
        marks=pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1"),
    ),
    pytest.param(
        grow_triton,
        "cuda",
        id="kernel-cuda",
        marks=pytest.mark.skipif(
            INTERPRETED or not torch.cuda.is_available(), reason="no CUDA device"
        ),
    ),
]


def same_as_host(
    built: TreeTensors, log_probs: Any, tokens: Any, roots: Any, budget: int, width: int | None
) -> None:
    """Every tensor beside the heap's tree and the oracle's links and mask."""
    for i, root in enumerate(roots):
        width_here = max(budget, 1) if width is None else width
        wanted = grow(Candidates(log_probs[i], tokens[i]), int(root), budget, width_here)
        count, tree = wanted.tree.num_nodes, wanted.tree
        assert int(built.counts[i]) == count
        for name, expected in (
            ("parents", tree.parents),
            ("tokens", tree.tokens),
            ("depths", tree.depths),
            ("ranks", wanted.ranks),
            ("log_weights", tree.log_weights),
        ):
            assert getattr(built, name)[i, :count].tolist() == expected.tolist(), name
        record = TreeRecord(parents=tree.parents, tokens=tree.tokens)
        oracle = Oracle(VerifyStep(requests=(Request(rid="r", prefix_len=0, tree=record),)))
        links = (built.retrieve_next_token, built.retrieve_next_sibling)
        for found, expected in zip(links, oracle.links(0), strict=True):
            assert found[i, :count].tolist() == expected.tolist()
            assert (found[i, count:] == -1).all()
        block = oracle.tree_block(0)[:count, :count]
        assert built.visible[i, :count, :count].tolist() == block.tolist()
        eye = torch.eye(budget + 1, dtype=torch.int8)
        assert torch.equal(built.visible[i, count:].cpu(), eye[count:])
        assert (built.parents[i, count:] == -1).all()
        assert (built.depths[i, count:] == 0).all()


def table(batch: int, length: int, width: int, seed: int, step: float, lost: float) -> Any:
    """Descending log-probabilities, rounded to multiples of ``step`` so that many tie; some can't be drafted."""
    random = np.random.default_rng(seed)
    values = -np.round(random.exponential(1.0, (batch, length, width)) / step) * step
    values[random.random(values.shape) < lost] = -np.inf
    values = -np.sort(-values, axis=2)
    tokens = np.stack(
        [[random.permutation(1000)[:width] for _ in range(length)] for _ in range(batch)]
    ).reshape(batch, length, width)
    return values, tokens.astype(np.int64), random.integers(0, 1000, batch)


def run(builder: Any, device: str, values: Any, budget: int, width: int | None) -> TreeTensors:
    log_probs, tokens, roots = (torch.from_numpy(part).to(device) for part in values)
    result: TreeTensors = builder(log_probs, tokens, roots, budget, width)
    return result


@pytest.mark.parametrize(("builder", "device"), BUILDERS)
@pytest.mark.parametrize("step", [0.5, 1e-9])
@pytest.mark.parametrize("budget", [0, 1, 7, 20])
def test_trees_are_the_hosts(builder: Any, device: str, budget: int, step: float) -> None:
    values = table(3, 6, 8, budget, step, 0.1)
    same_as_host(run(builder, device, values, budget, None), *values, budget, None)


@pytest.mark.parametrize(("builder", "device"), BUILDERS)
def test_a_confident_drafter_ties_parent_and_child(builder: Any, device: str) -> None:
    """Log-probability 0 exactly: the prefix comes first, and all siblings after the chain."""
    values = np.zeros((1, 5, 4)), np.arange(20).reshape(1, 5, 4), np.array([9])
    built = run(builder, device, values, 8, None)
    assert built.ranks[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 3]
    assert built.depths[0].tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 5]
    same_as_host(built, *values, 8, None)


@pytest.mark.parametrize(("builder", "device"), BUILDERS)
def test_candidates_run_out(builder: Any, device: str) -> None:
    values = table(2, 2, 2, 0, 0.5, 0.0)
    built = run(builder, device, values, 12, None)
    assert built.counts.tolist() == [7, 7]
    same_as_host(built, *values, 12, None)
    nothing = np.full((1, 2, 2), -np.inf), values[1][:1], values[2][:1]
    assert run(builder, device, nothing, 3, None).counts.tolist() == [1]


@pytest.mark.parametrize(("builder", "device"), BUILDERS)
def test_blocks_of_fifteen_with_many_ranks(builder: Any, device: str) -> None:
    """Keys of more than one word."""
    values = table(1, 15, 64, 5, 0.25, 0.0)
    values[0][:] = np.minimum(values[0], -np.arange(64) * 0.25)
    values[0][:, :, 0] = 0.0
    same_as_host(run(builder, device, values, 32, 64), *values, 32, 64)


@settings(max_examples=8, deadline=None)
@given(st.data())
@pytest.mark.parametrize(("builder", "device"), BUILDERS[:2])
def test_random_trees(builder: Any, device: str, data: st.DataObject) -> None:
    length, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 6))
    budget, cap = data.draw(st.integers(0, 10)), data.draw(st.none() | st.integers(1, 6))
    step = data.draw(st.sampled_from([2.0, 0.5, 1e-6]))
    values = table(2, length, width, data.draw(st.integers(0, 999)), step, 0.15)
    same_as_host(run(builder, device, values, budget, cap), *values, budget, cap)


def test_positions_follow_the_prefix() -> None:
    values = table(2, 4, 3, 1, 0.5, 0.0)
    log_probs, tokens, roots = (torch.from_numpy(part) for part in values)
    built = grow_on_device(log_probs, tokens, roots, 6)
    positions = built.positions(torch.tensor([10, 200]))
    assert positions[0].tolist() == (10 + built.depths[0]).tolist()
    assert positions[1].tolist() == (200 + built.depths[1]).tolist()


def test_depths_that_no_key_holds() -> None:
    values = torch.zeros(1, 30, 64, dtype=torch.float64)
    with pytest.raises(ValueError, match="at most 27 depths of 64 ranks, found 64 and 30"):
        grow_on_device(values, values.long(), torch.zeros(1, dtype=torch.int64), 64)

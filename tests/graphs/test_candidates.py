"""The best tokens of each position are the host's: ties by id, -inf, rows that are not finite.

Run: pytest tests/graphs/test_candidates.py
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.decoding.best_first import Candidates, grow, top_candidates
from engine.graphs.candidates import best_tokens_torch, best_tokens_triton
from tests.attention.devices import DEVICES, INTERPRETED

RUNS = [pytest.param(best_tokens_torch, "cpu", id="torch")] + [
    pytest.param(best_tokens_triton, *p.values, id=f"kernel-{p.values[0]}", marks=p.marks)
    for p in DEVICES
]
INF = math.inf


def same_as_host(logits: Tensor, run: object, device: str, count: int) -> None:
    log_probs, tokens = run(logits.to(device), count)  # type: ignore[operator]
    host = top_candidates(logits.float(), count)
    drafted = np.isfinite(host.log_probs)
    assert np.array_equal(np.isfinite(log_probs.cpu().numpy()), drafted)
    assert tokens.cpu().numpy()[drafted].tolist() == host.tokens[drafted].tolist()
    np.testing.assert_allclose(
        log_probs.cpu().numpy()[drafted], host.log_probs[drafted], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("run", "device"), RUNS)
def test_literally(run: object, device: str) -> None:
    logits = torch.tensor([[0.0, math.log(3.0), -INF, math.log(3.0), -0.0]], device=device)
    log_probs, tokens = run(logits, 5)  # type: ignore[operator]
    assert tokens[0, :4].tolist() == [1, 3, 0, 4]
    expected = [math.log(3 / 8), math.log(3 / 8), math.log(1 / 8), math.log(1 / 8), -INF]
    assert log_probs[0].tolist() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("run", "device"), RUNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocab", "count"), [(5, 5), (64, 3), (4097, 16), (9001, 64)])
def test_random(run: object, device: str, dtype: torch.dtype, vocab: int, count: int) -> None:
    drawn = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab))
    same_as_host((2 * drawn).to(dtype), run, device, count)  # 16 bits: many ties


@pytest.mark.parametrize(("run", "device"), RUNS)
def test_all_equal_and_mostly_forbidden(run: object, device: str) -> None:
    same_as_host(torch.zeros(2, 5000), run, device, 64)
    logits = torch.full((2, 5000), -INF)
    logits[0, [4999, 17, 4096]] = torch.tensor([1.0, 2.0, 1.0])
    same_as_host(logits, run, device, 16)


@pytest.mark.parametrize(("run", "device"), RUNS)
@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_a_row_that_is_not_finite_drafts_nothing(run: object, device: str, bad: float) -> None:
    logits = torch.zeros(2, 70)
    logits[0] = bad
    log_probs, _ = run(logits.to(device), 8)  # type: ignore[operator]
    assert log_probs[0].isneginf().all()
    assert log_probs[1].isfinite().all()


@pytest.mark.parametrize(("run", "device"), RUNS)
@settings(max_examples=8 if INTERPRETED else 40)
@given(data=st.data())
def test_trees_of_random_logits_with_ties(run: object, device: str, data: st.DataObject) -> None:
    vocab, length = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 4))
    values = st.sampled_from([-INF, -1.0, 0.0, 0.5, 3.0])
    drawn = data.draw(st.lists(values, min_size=vocab * length, max_size=vocab * length))
    logits = torch.tensor(drawn).view(length, vocab)
    budget = data.draw(st.integers(1, 20))
    log_probs, tokens = run(logits.to(device), min(budget, vocab))  # type: ignore[operator]
    mine = grow(Candidates(log_probs.cpu().numpy(), tokens.cpu().numpy()), 7, budget, budget)
    host = grow(top_candidates(logits, budget), 7, budget, budget)
    assert mine.tree.parents.tolist() == host.tree.parents.tolist()
    assert mine.tree.tokens.tolist() == host.tree.tokens.tolist()


def test_a_view_of_wider_rows() -> None:
    wide = torch.randn(3, 200, generator=torch.Generator().manual_seed(3))
    for part in (wide[:, :100], wide[1:, 50:150]):
        if INTERPRETED:
            same_as_host(part, best_tokens_triton, "cpu", 9)
        same_as_host(part, best_tokens_torch, "cpu", 9)


def test_what_is_refused() -> None:
    logits = torch.zeros(1, 300)
    for count in (0, 257, 301):
        with pytest.raises(ValueError, match=r"expected a count of 1 … 256, found"):
            best_tokens_torch(logits, count)
    with pytest.raises(ValueError, match="found float64"):
        best_tokens_torch(logits.double(), 3)
    with pytest.raises(ValueError, match="found stride 2"):
        best_tokens_torch(torch.zeros(2, 8)[:, ::2], 3)

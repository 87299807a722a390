"""The candidates of a vocab-parallel head against one log-softmax over the whole vocabulary."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang.ddtree import head
from engine.sglang.ddtree.head import Shard, candidates, local_best, merge


def shards(vocab: int, ranks: int, padding: int = 0) -> list[Shard]:
    """Equal pieces, the last ones short or empty, as a vocab-parallel head cuts them."""
    size = -(-vocab // ranks)
    starts = [min(rank * size, vocab) for rank in range(ranks)]
    return [
        Shard(min(start + size, vocab) - start, size + padding, 0, start, vocab) for start in starts
    ]


def cut(weight: torch.Tensor, shard: Shard) -> torch.Tensor:
    """A rank's weight: its rows, then padding that would win every comparison."""
    own = weight[shard.org_vocab_start_index :][: shard.num_org_elements]
    padding = shard.num_org_elements_padded - shard.num_org_elements
    return torch.cat([own, torch.full((padding, weight.shape[1]), 1e4)])


def expected(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """By one sort of whole rows, equal logits by id."""
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    ids = logits.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    return log_probs.gather(1, ids), ids


def test_literal() -> None:
    weight = torch.log(torch.tensor([[0.1], [0.2], [0.4], [0.3]]))
    parts = [local_best(torch.ones(1, 1), cut(weight, s), s, 3) for s in shards(4, 2, 3)]
    log_probs, ids = merge(torch.stack(parts), 3)
    assert ids.tolist() == [[2, 3, 1]]
    assert log_probs.exp()[0].tolist() == pytest.approx([0.4, 0.3, 0.2])


@given(
    st.integers(1, 12), st.integers(1, 5), st.integers(1, 6), st.integers(0, 3), st.integers(0, 999)
)
def test_ranks_together_know_what_one_rank_knows(
    vocab: int, ranks: int, count: int, padding: int, seed: int
) -> None:
    count = min(count, vocab)
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-2, 3, (5, 3), generator=generator).float()  # small integers: many ties
    weight = torch.randint(-2, 3, (vocab, 3), generator=generator).float()
    parts = [local_best(hidden, cut(weight, s), s, count) for s in shards(vocab, ranks, padding)]
    log_probs, ids = merge(torch.stack(parts), count)
    wanted_log_probs, wanted_ids = expected(hidden @ weight.T, count)
    assert ids.tolist() == wanted_ids.tolist()
    torch.testing.assert_close(log_probs, wanted_log_probs, rtol=0, atol=1e-12)


def test_added_tokens_have_their_own_ids() -> None:
    shard = Shard(2, 4, 1, 10, 77)
    weight = torch.tensor([[1.0], [2.0], [9.0], [9.0], [3.0]])  # two rows of padding between
    log_probs, ids = merge(local_best(torch.ones(1, 1), weight, shard, 3)[None], 3)
    assert ids.tolist() == [[77, 11, 10]]
    assert float(log_probs.exp().sum()) == pytest.approx(1.0)


def test_a_token_that_cannot_be_drafted_stays_so() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0]])
    parts = [local_best(logits, torch.eye(3)[:, :3], Shard(3, 3, 0, 0, 3), 3)]
    assert parts[0].isfinite().sum() < parts[0].numel()
    log_probs, _ = merge(torch.stack(parts), 3)
    assert not log_probs.isnan().any()


def test_rows_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, shard = torch.randn(7, 4), Shard(6, 6, 0, 0, 6)
    weight = torch.randn(6, 4)
    whole = local_best(hidden, weight, shard, 2)
    monkeypatch.setattr(head, "CHUNK", 3)
    torch.testing.assert_close(local_best(hidden, weight, shard, 2), whole)


def test_one_gather_a_step() -> None:
    """The group's only call: everything in one flat tensor, in the order of ranks."""
    weight, hidden, pieces = torch.randn(8, 4), torch.randn(3, 4), shards(8, 2)
    heads = [SimpleNamespace(weight=cut(weight, s), shard_indices=s) for s in pieces]
    parts = [local_best(hidden, h.weight, Shard.of(h), 4).flatten() for h in heads]
    calls: list[int] = []

    class Group:
        world_size = 2

        def all_gather_into_tensor(self, out: torch.Tensor, own: torch.Tensor) -> None:
            calls.append(own.numel())
            assert any(torch.equal(own, part) for part in parts)
            out.copy_(torch.cat(parts))

    results: list[Any] = [candidates(hidden, h, 4, Group()) for h in heads]
    assert calls == [27, 27]
    for log_probs, ids in results:
        wanted_log_probs, wanted_ids = expected(hidden @ weight.T, 4)
        assert torch.equal(ids, wanted_ids)
        torch.testing.assert_close(log_probs, wanted_log_probs, rtol=0, atol=1e-6)
    assert torch.equal(results[0][0], results[1][0])  # to the last bit: ranks must agree


def test_raw_logits_would_rank_positions_wrongly() -> None:
    """Two positions with the same best logit and other spreads: only log-probabilities tell them apart."""
    logits = torch.tensor([[3.0, 2.9, 2.8], [3.0, -5.0, -5.0]])
    log_probs, _ = merge(local_best(logits, torch.eye(3), Shard(3, 3, 0, 0, 3), 1)[None], 1)
    assert log_probs[1, 0] > log_probs[0, 0]

"""Persistent buffers: what a replay refreshes, pads and keeps."""

import pytest
import torch

from engine.decoding.metadata import VerifyInputs, build_attention_metadata
from engine.decoding.replay import ReplayBuffers
from engine.decoding.settings import EngineConfig, Graph
from engine.decoding.stages import CORRECT
from engine.models.tiny import random_decoder
from tests.decoding.runs import PROMPTS, run_engine


def live(prefix_lens: list[int], q_len: int, fill: int) -> VerifyInputs:
    rows = len(prefix_lens) * q_len
    seq_lens = torch.tensor(prefix_lens)
    mask = torch.full((int((q_len * (seq_lens + q_len)).sum()),), fill, dtype=torch.uint8)
    slots = torch.arange(int(seq_lens.sum())) + 50
    meta = build_attention_metadata(seq_lens, slots, mask, q_len)
    ids = torch.full((rows,), 7)
    return VerifyInputs(ids, torch.full((rows,), 9), seq_lens, torch.arange(rows) + 80, meta)


def test_padded_requests_get_the_fill_values() -> None:
    buffers = ReplayBuffers(3, q_len=2, max_context=10)
    got = buffers.refresh(live([4], 2, 1), 2, CORRECT)
    assert got.seq_lens.tolist() == [4, 1, 1]
    assert got.positions.tolist() == [9, 9, 0, 0, 0, 0]
    assert got.out_cache_loc.tolist() == [80, 81, 0, 0, 0, 0]
    assert got.attention.qo_indptr.tolist() == [0, 2, 4, 6]
    assert got.attention.kv_indptr.tolist() == [0, 4, 5, 6]
    assert got.attention.kv_indices.tolist() == [50, 51, 52, 53, 0, 0]
    assert got.attention.mask_indptr.tolist() == [0, 12, 18, 24]


def test_what_a_smaller_batch_does_not_reach_is_old() -> None:
    buffers = ReplayBuffers(2, q_len=2, max_context=10)
    buffers.refresh(live([4, 5], 2, 1), 2, CORRECT)
    got = buffers.refresh(live([4], 2, 0), 2, CORRECT)
    mask = got.attention.custom_mask
    assert (mask[:12] == 0).all()
    assert (mask[12:26] == 1).all()


def test_views_share_the_buffers_memory() -> None:
    buffers = ReplayBuffers(2, q_len=2, max_context=10)
    first = buffers.refresh(live([4], 2, 1), 2, CORRECT)
    buffers.refresh(live([6], 2, 1), 2, CORRECT)
    assert first.seq_lens.tolist() == [6, 1]


def test_capacity_counts_the_draft_columns() -> None:
    assert ReplayBuffers(3, q_len=17, max_context=100).mask_capacity == 3 * 17 * 117


@pytest.mark.parametrize(("raw_bs", "captured"), [(1, 1), (2, 2), (3, 4)])
def test_a_batch_runs_in_the_next_captured_size(raw_bs: int, captured: int) -> None:
    model = random_decoder("llama", seed=0)
    config = EngineConfig(graph=Graph.REPLAY, max_context=64)
    _, steps = run_engine(model, config, PROMPTS[:raw_bs], 8)
    assert steps[0].raw_bs == raw_bs
    assert steps[0].captured_bs == captured
    assert steps[0].inputs.input_ids is not None
    assert len(steps[0].inputs.input_ids) == captured * 17


def test_a_batch_that_no_graph_holds_is_named() -> None:
    with pytest.raises(ValueError, match="captured_bs: expected one of at least 9, found"):
        EngineConfig().captured_for(9)

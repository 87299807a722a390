"""The device's rows, offsets, slots and mask are those that the host lays out, padded requests included.

Run: pytest tests/graphs/test_layout.py
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding import metadata
from engine.decoding.metadata import VerifyRequest
from engine.graphs.layout import Layout
from tests.attention.devices import DEVICES, INTERPRETED
from tests.graphs.batches import Batch, random_batch

SIZES = [(1, 1, 9), (3, 2, 9), (4, 4, 1), (5, 3, 16), (2, 0, 4)]  # captured, live, budget


def lay_out(batch: Batch, kernel: bool) -> Layout:
    layout = batch.layout
    for name in ("prefixes", "rows"):
        run = getattr(layout, f"{name}_{'triton' if kernel else 'torch'}")
        run(batch.state) if name == "prefixes" else run(batch.state, batch.tree)
    return layout


def as_on_host(batch: Batch) -> None:
    """Every live part beside the host's builders; padded rows hold padding."""
    layout, q_len, live = batch.layout, batch.layout.q_len, batch.raw_bs
    lens = batch.state.seq_lens.cpu()
    requests = [
        VerifyRequest(f"r{i}", batch.tree_of(i), int(lens[i]), int(batch.state.request_rows[i]))
        for i in range(live)
    ]
    table = layout.req_to_token.cpu()
    live_rows, live_keys = live * q_len, int(lens[:live].sum())
    tokens = [metadata.tree_tokens(r.tree, q_len) for r in requests]
    positions = [metadata.tree_positions(r.tree, r.prefix_len, q_len) for r in requests]
    slots = [table[r.req_pool_idx, r.prefix_len : r.prefix_len + q_len] for r in requests]
    masks = [metadata.tree_mask(r.tree, r.prefix_len, q_len).flatten() for r in requests]
    none = torch.empty(0, dtype=torch.int64)
    for found, wanted in (
        (layout.input_ids, tokens),
        (layout.positions, positions),
        (layout.out_cache_loc, slots),
    ):
        assert found.cpu()[:live_rows].tolist() == torch.cat([none, *wanted]).tolist()
        assert not found[live_rows:].any()
    expected = metadata.build_attention_metadata(
        lens, metadata.gather_kv_indices(table, requests), torch.cat([none, *masks]).byte(), q_len
    )
    for name in ("qo_indptr", "kv_indptr", "mask_indptr"):
        found, wanted = getattr(layout, name).cpu(), getattr(expected, name)
        assert found.dtype == wanted.dtype, name
        assert found.tolist() == wanted.tolist(), name
    assert layout.kv_indices.cpu()[:live_keys].tolist() == expected.kv_indices.tolist()
    padded = slice(live_keys, live_keys + layout.captured - live)
    assert not layout.kv_indices[padded].any()
    cells = len(expected.custom_mask)
    assert layout.custom_mask.cpu()[:cells].tolist() == expected.custom_mask.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", SIZES)
def test_kernels(device: str, sizes: tuple[int, int, int]) -> None:
    captured, raw_bs, budget = sizes
    batch = random_batch(sum(sizes), captured=captured, raw_bs=raw_bs, budget=budget, device=device)
    lay_out(batch, kernel=True)
    as_on_host(batch)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 20), st.data())
def test_twins(seed: int, captured: int, budget: int, data: st.DataObject) -> None:
    raw_bs = data.draw(st.integers(0, captured))
    batch = random_batch(seed, captured=captured, raw_bs=raw_bs, budget=budget)
    lay_out(batch, kernel=False)
    as_on_host(batch)


@pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1")
def test_a_buffer_that_held_another_step_is_overwritten() -> None:
    batch = random_batch(3)
    batch.layout.custom_mask.fill_(7)
    batch.layout.kv_indices.fill_(-5)
    lay_out(batch, kernel=True)
    as_on_host(batch)
    end = int(batch.layout.mask_indptr[-1])
    assert set(batch.layout.custom_mask[:end].tolist()) <= {0, 1}
    assert (batch.layout.custom_mask[end:] == 7).all()  # nothing is written behind the batch
    assert (batch.layout.kv_indices[int(batch.layout.kv_indptr[-1]) :] == -5).all()

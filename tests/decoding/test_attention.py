"""The addressed backend against the dense one on right metadata, and by itself on wrong metadata."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.attention.addressed import AddressedAttention, AddressFault, Unwritten
from engine.attention.dense import dense_attend
from engine.decoding import metadata
from engine.decoding.metadata import AttentionMetadata
from engine.models.config import DecoderConfig
from engine.models.kv_pool import KVPool
from engine.models.tiny import random_decoder
from engine.tree import DraftTree, chain
from tests.factories import trees

CONFIG: DecoderConfig = random_decoder("llama", seed=0).config


def rows_of(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def heads(n: int) -> Tensor:
        return torch.randn(count, n, CONFIG.head_dim, generator=generator)

    return heads(CONFIG.num_heads), heads(CONFIG.num_kv_heads), heads(CONFIG.num_kv_heads)


def filled_pool(seed: int = 1) -> KVPool:
    pool = KVPool(CONFIG, 200)
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*pool.k, *pool.v):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return pool


def laid_out(batch: list[DraftTree], prefix_lens: list[int], width: int) -> AttentionMetadata:
    masks = [metadata.tree_mask(t, p, width) for t, p in zip(batch, prefix_lens, strict=True)]
    flat = torch.cat([m.flatten() for m in masks]).to(torch.uint8)
    slots = torch.randperm(100)[: sum(prefix_lens)] + 1
    return metadata.build_attention_metadata(torch.tensor(prefix_lens), slots, flat, width)


@given(st.lists(trees(8), min_size=1, max_size=3), st.integers(0, 3), st.integers(0, 10**6))
def test_addressed_equals_dense_on_right_metadata(batch, padding, seed) -> None:
    width = max(t.num_nodes for t in batch) + padding
    prefix_lens = [1 + (seed + 5 * i) % 9 for i in range(len(batch))]
    meta = laid_out(batch, prefix_lens, width)
    pool = filled_pool()
    q, k, v = rows_of(len(batch) * width, seed)
    slots = torch.arange(len(q)) + 110
    out = AddressedAttention(pool).begin(meta, slots)(0, q, k, v)
    for i, (tree, prefix) in enumerate(zip(batch, prefix_lens, strict=True)):
        own = slice(i * width, (i + 1) * width)
        prefix_slots = meta.kv_indices[meta.kv_indptr[i] : meta.kv_indptr[i + 1]]
        mask = torch.zeros(width, prefix + width, dtype=torch.bool)
        mask[:, :prefix] = True
        for row in range(width):
            seen = tree.paths[row] if row < tree.num_nodes else (row,)
            mask[row, [prefix + other for other in seen]] = True
        keys = torch.cat([pool.k[0][prefix_slots], k[own]])
        values = torch.cat([pool.v[0][prefix_slots], v[own]])
        expected = dense_attend(q[own], keys, values, mask, torch.float64)
        assert (out[own] - expected).abs().max() < 1e-5


def test_dense_attention_written_out_by_hand() -> None:
    q = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    k = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    v = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    mask = torch.tensor([[True, False], [True, True]])
    out = dense_attend(q, k, v, mask, torch.float64)
    share = 1 / (1 + math.exp(2 / math.sqrt(2)))  # weight of key 0 in row 1
    expected = [[[1.0, 2.0]], [[share + 3 * (1 - share), 2 * share + 4 * (1 - share)]]]
    assert torch.allclose(out, torch.tensor(expected), atol=1e-6)


def wrong_width(width: int) -> tuple[AddressedAttention, AttentionMetadata, int]:
    meta = laid_out([chain(list(range(8)))], [5], 17)
    wrong = metadata.build_attention_metadata(
        torch.tensor([5]), meta.kv_indices, meta.custom_mask, width
    )
    return AddressedAttention(filled_pool(), Unwritten.NAN), wrong, 17


def test_rows_that_no_program_covers_stay_unwritten() -> None:
    attention, wrong, rows = wrong_width(8)
    out = attention.begin(wrong, torch.arange(rows) + 110)(0, *rows_of(rows, 3))
    assert out[:8].isfinite().all()
    assert out[8:].isnan().all()


def test_unwritten_rows_hold_old_memory() -> None:
    attention, wrong, rows = wrong_width(8)
    attention.unwritten = Unwritten.STALE
    step = attention.begin(wrong, torch.arange(rows) + 110)
    first, second = rows_of(rows, 3), rows_of(rows, 4)
    assert (step(0, *first)[8:] == 0).all()  # nothing was allocated before
    assert torch.equal(step(1, *second)[8:], first[0][8:])  # the query block that was freed


def test_a_wrong_width_attends_as_the_real_kernel_does() -> None:
    """One-hot values show what each row attends to: row 1 loses nodes 0 and 1 and sees nodes 4 to 7."""
    attention, wrong, rows = wrong_width(8)
    pool = attention.pool
    meta_slots = wrong.kv_indices
    q, k, v = (torch.zeros_like(t) for t in rows_of(rows, 0))
    for tensor in (*pool.k, *pool.v):
        tensor.zero_()
    seen = torch.zeros(rows, 5 + 8)
    for column in range(5 + 8):
        pool.v[0].zero_()
        v.zero_()
        if column < 5:
            pool.v[0][meta_slots[column]] = 1.0
        else:
            v[column - 5] = 1.0
        out = attention.begin(wrong, torch.arange(rows) + 110)(0, q, k, v)
        seen[:, column] = out[:, 0, 0]
    visible = (seen > 0).int().tolist()
    assert visible[0] == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert visible[1] == [1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]


def test_the_grid_is_whole_tiles() -> None:
    """``max_extend_len`` 8 launches one tile of 64 rows: all 17 rows of a right ``qo_indptr`` are computed."""
    meta = laid_out([chain(list(range(17)))], [5], 17)
    meta = replace(meta, max_extend_len=8)
    attention = AddressedAttention(filled_pool(), Unwritten.NAN)
    out = attention.begin(meta, torch.arange(17) + 110)(0, *rows_of(17, 3))
    assert out.isfinite().all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("qo_indptr", [0, 9], r"qo_indptr\[1\]: expected at most 8 \(rows sent\), found 9"),
        ("kv_indptr", [0, 6], r"kv_indptr\[1\]: expected at most 5 \(entries of kv_indices\)"),
        (
            "mask_indptr",
            [1, 105],
            r"last mask cell \+ 1: expected at most 104 \(cells\), found 105",
        ),
    ],
)
def test_offsets_outside_a_tensor_are_faults_not_wrong_numbers(field, value, message) -> None:
    meta = laid_out([chain(list(range(8)))], [5], 8)
    meta = replace(meta, **{field: torch.tensor(value)})
    with pytest.raises(AddressFault, match=message):
        AddressedAttention(filled_pool()).begin(meta, torch.arange(8) + 110)

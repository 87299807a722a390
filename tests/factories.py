"""Shared factories: random trees, and clean steps laid out by the engine's own builders."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st

from engine.decoding import metadata
from engine.decoding.metadata import VerifyRequest
from engine.step import (
    Commit,
    Config,
    Inputs,
    LayerCommit,
    Links,
    Outcome,
    Reference,
    Request,
    Source,
    TreeRecord,
    VerifyStep,
)
from engine.tree import DraftTree, chain, make_tree

VOCAB = 50


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def example_step() -> VerifyStep:
    """The worked example of the step format, field by field."""
    rows = "1,1,1,0,0,0, 1,1,1,1,0,0, 1,1,1,0,1,0, 1,1,1,0,1,1"
    mask = np.array([int(c) for c in rows.split(",")], np.uint8)
    tree = TreeRecord(ints(-1, 0, 0, 2), ints(5, 9, 12, 30), np.array([0.0, -0.4, -1.2, -1.5]))
    return VerifyStep(
        requests=(Request("r0", 2, tree, prefix_slots=ints(7, 8)),),
        source=Source(
            engine="sglang", attention_backend="triton", graph="eager", raw_bs=1, captured_bs=1
        ),
        config=Config(
            budget=3,
            block_size=4,
            topk=2,
            temperature=0.0,
            verify_rows="static",
            num_draft_tokens=4,
            vocab_size=VOCAB,
            eos_token_ids=ints(2),
            mask_layout="full",
            mask_encoding="bytes",
            kv_indptr_counts_draft=False,
        ),
        inputs=Inputs(
            input_ids=ints(5, 9, 12, 30),
            positions=ints(2, 3, 3, 4),
            seq_lens=ints(2),
            qo_indptr=ints(0, 4),
            kv_indptr=ints(0, 2),
            kv_indices=ints(7, 8),
            max_extend_len=4,
            mask_indptr=ints(0, 24),
            custom_mask=mask,
            out_cache_loc=ints(20, 21, 22, 23),
        ),
        links=Links((ints(1, -1, 3, -1),), (ints(-1, 2, -1, -1),)),
        outcome=Outcome(
            target_predict=ints(12, 4, 30, 44),
            accept_index=(ints(0, 2, 3, -1),),
            accept_length=ints(3),
            bonus_tokens=ints(44),
            emitted=(ints(12, 30, 44),),
        ),
        commit=Commit(
            seq_lens=ints(5),
            kv=(LayerCommit(0, (ints(0, 2, 3),)),),
            hidden_rows=(ints(0, 2, 3),),
        ),
        logits_dtype="bfloat16",
    )


BUSHY = make_tree([-1, 0, 0, 0, 1, 1, 2, 4, 4, 6], [1, 2, 3, 4, 5, 6, 5, 7, 8, 9])
CHAIN = chain([1, 2, 3, 4, 5, 6])
MIXED = make_tree([-1, 0, 1, 2, 0, 3, 4], [1, 2, 3, 4, 5, 6, 7])


def clean_step(
    trees: list[DraftTree],
    prefix_lens: list[int],
    *,
    budget: int,
    step: int = 0,
    captured_bs: int | None = None,
    seed: int = 0,
) -> VerifyStep:
    """A step as a correct engine would hand it out; predictions are random, the walk follows them."""
    q_len = budget + 1
    captured = captured_bs or len(trees)
    padded = captured - len(trees)
    requests = [
        VerifyRequest(f"r{i}", tree, prefix, i + 1)
        for i, (tree, prefix) in enumerate(zip(trees, prefix_lens, strict=True))
    ]
    seq_lens = torch.tensor(prefix_lens + [1] * padded)
    masks = [metadata.tree_mask(r.tree, r.prefix_len, q_len) for r in requests]
    masks += [torch.zeros(q_len, 1 + q_len, dtype=torch.bool)] * padded
    flat = torch.cat([mask.flatten() for mask in masks]).to(torch.uint8)
    kv_indices = torch.arange(int(seq_lens.sum())) + 100
    attention = metadata.build_attention_metadata(seq_lens, kv_indices, flat, q_len)
    positions = [metadata.tree_positions(r.tree, r.prefix_len, q_len) for r in requests]
    positions += [torch.zeros(q_len, dtype=torch.int64)] * padded
    ids = [metadata.tree_tokens(r.tree, q_len) for r in requests]
    ids += [torch.zeros(q_len, dtype=torch.int64)] * padded
    links = metadata.build_links(trees, q_len)
    outcome, paths = _outcome(trees, q_len, captured, np.random.default_rng(seed))
    return VerifyStep(
        requests=tuple(
            Request(
                r.rid, r.prefix_len, TreeRecord(r.tree.parents, r.tree.tokens, r.tree.log_weights)
            )
            for r in requests
        ),
        step=step,
        source=Source(
            attention_backend="triton",
            graph="eager" if captured_bs is None else "replay",
            raw_bs=len(trees),
            captured_bs=captured,
        ),
        config=Config(
            budget=budget,
            block_size=64,
            verify_rows="static",
            num_draft_tokens=q_len,
            vocab_size=VOCAB,
            temperature=0.0,
        ),
        inputs=Inputs(
            input_ids=torch.cat(ids).numpy(),
            positions=torch.cat(positions).numpy(),
            seq_lens=seq_lens.numpy(),
            qo_indptr=attention.qo_indptr.numpy(),
            kv_indptr=attention.kv_indptr.numpy().astype(np.int64),
            kv_indices=kv_indices.numpy(),
            max_extend_len=q_len,
            mask_indptr=attention.mask_indptr.numpy(),
            custom_mask=flat.numpy(),
            out_cache_loc=np.arange(captured * q_len) + 10_000,
        ),
        links=Links(
            tuple(links.retrieve_next_token.numpy()), tuple(links.retrieve_next_sibling.numpy())
        ),
        outcome=outcome,
        commit=Commit(
            seq_lens=ints(*(p + len(path) for p, path in zip(prefix_lens, paths, strict=True))),
            kv=tuple(LayerCommit(layer, tuple(ints(*p) for p in paths)) for layer in (1, 5)),
        ),
        reference=Reference(target_predict=outcome.target_predict),
        logits_dtype="float32",
    )


def _outcome(
    trees: list[DraftTree], q_len: int, captured: int, rng: np.random.Generator
) -> tuple[Outcome, list[list[int]]]:
    predict = rng.integers(VOCAB, VOCAB + 50, captured * q_len)  # matches no node unless set below
    paths = []
    for i, tree in enumerate(trees):
        path = list(tree.paths[int(rng.integers(tree.num_nodes))])
        for parent, child in pairwise(path):
            predict[i * q_len + parent] = tree.tokens[child]
        paths.append(path)
    longest = max(map(len, paths))
    flat = [
        ints(*(i * q_len + n for n in path), *[-1] * (longest - len(path)))
        for i, path in enumerate(paths)
    ]
    bonus = ints(*(predict[i * q_len + path[-1]] for i, path in enumerate(paths)))
    outcome = Outcome(
        target_predict=predict.astype(np.int64),
        accept_index=tuple(flat),
        accept_length=ints(*map(len, paths)),
        bonus_tokens=bonus,
    )
    return outcome, paths


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 20) -> DraftTree:
    """Random trees with distinct siblings and non-increasing weights."""
    size = draw(st.integers(1, max_nodes))
    parents = [-1] + [draw(st.integers(0, node - 1)) for node in range(1, size)]
    used: dict[int, set[int]] = {}
    tokens = [draw(st.integers(0, VOCAB - 1))]
    for parent in parents[1:]:
        taken = used.setdefault(parent, set())
        token = draw(st.integers(0, VOCAB - 1).filter(lambda t, taken=taken: t not in taken))
        taken.add(token)
        tokens.append(token)
    return make_tree(parents, tokens, [-0.25 * node for node in range(size)])


@st.composite
def clean_steps(draw: st.DrawFn, max_bs: int = 3, max_prefix: int = 12) -> VerifyStep:
    """Clean steps of random batches, static width, eager or padded replay."""
    batch = draw(st.lists(trees(), min_size=1, max_size=max_bs))
    prefixes = [draw(st.integers(1, max_prefix)) for _ in batch]
    budget = max(tree.num_nodes for tree in batch) - 1 + draw(st.integers(0, 4))
    captured = draw(st.sampled_from([None, len(batch) + 1]))
    seed = draw(st.integers(0, 2**16))
    return clean_step(batch, prefixes, budget=budget, captured_bs=captured, seed=seed)

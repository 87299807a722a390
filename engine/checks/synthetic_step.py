"""The arrays of a synthetic step: all that follows from its requests, settings and predictions, by the oracle.

Covered: one rank, every request live, one byte a cell. Not covered: where predictions and slots come from
(``engine.checks.synthetic``).
"""

from __future__ import annotations

import numpy as np

from engine.layout import VISIBLE, indptr
from engine.oracle import Oracle
from engine.step import Commit, Float64, Inputs, Int64, LayerCommit, Links, Outcome, UInt8

LAYERS = 2
BEST, SECOND = 9.5, 7.25  # logits of each row's two best tokens
Paths = list[list[int]]  # accepted nodes of each request, the root first


def inputs_of(oracle: Oracle, out_cache_loc: Int64) -> Inputs:
    """What the kernel is given. ``out_cache_loc``: int64 [rows]."""
    geometry, requests = oracle.geometry, oracle.step.requests
    held = [request.prefix_slots for request in requests if request.prefix_slots is not None]
    ids, positions = np.zeros_like(out_cache_loc), np.zeros_like(out_cache_loc)
    for request, tree in enumerate(oracle.trees):
        rows = oracle.real_rows(request)
        ids[rows.start : rows.stop] = tree.tokens
        positions[rows.start : rows.stop] = oracle.positions(request)
    return Inputs(
        input_ids=ids,
        positions=positions,
        seq_lens=oracle.prefix_lens,
        qo_indptr=geometry.qo_indptr,
        kv_indptr=indptr(oracle.prefix_lens),
        kv_indices=np.concatenate(held),
        max_extend_len=int(oracle.q_lens.max()),
        mask_indptr=geometry.mask_indptr,
        custom_mask=np.concatenate([_mask(oracle, i) for i in range(len(requests))]),
        out_cache_loc=out_cache_loc,
    )


def _mask(oracle: Oracle, request: int) -> UInt8:
    """Cells of one request in the order of the buffer, uint8 [q_len * stride]."""
    qlen_only = oracle.geometry.qlen_only
    cells = oracle.tree_block(request) if qlen_only else oracle.intended(request).cells
    seen: UInt8 = (cells == VISIBLE).astype(np.uint8)
    return seen.reshape(-1)


def links_of(oracle: Oracle) -> Links:
    """The trees as the acceptance walk reads them."""
    both = [oracle.links(request) for request in range(oracle.step.raw_bs)]
    return Links(tuple(token for token, _ in both), tuple(sibling for _, sibling in both))


def outcome_of(oracle: Oracle, predict: Int64, paths: Paths) -> Outcome:
    """What verification concludes from ``predict``, int64 [rows], whose accepted paths these are."""
    starts, widest = oracle.geometry.qo_indptr.tolist(), max(map(len, paths)) + 1
    flat = np.full((len(paths), widest), -1, np.int64)
    for request, path in enumerate(paths):
        flat[request, : len(path)] = starts[request] + np.array(path)
    bonus = [int(predict[starts[i] + path[-1]]) for i, path in enumerate(paths)]
    tokens = [oracle.trees[i].tokens[path[1:]] for i, path in enumerate(paths)]
    return Outcome(
        target_predict=predict,
        top2=top2_of(predict),
        finite_rows=np.ones(len(predict), np.bool_),
        accept_index=tuple(flat),
        accept_length=_lengths(paths),
        bonus_tokens=np.array(bonus, np.int64),
        emitted=tuple(np.append(path, last) for path, last in zip(tokens, bonus, strict=True)),
    )


def top2_of(predict: Int64) -> Float64:
    """Two best tokens of each row, well apart, float64 [rows, 2, 2]."""
    pairs = np.empty((len(predict), 2, 2))
    pairs[:, 0, 0], pairs[:, 0, 1] = predict, BEST
    pairs[:, 1, 0], pairs[:, 1, 1] = predict - 1, SECOND
    return pairs


def commit_of(oracle: Oracle, paths: Paths) -> Commit:
    """What is kept of the accepted paths."""
    nodes = tuple(np.array(path, np.int64) for path in paths)
    return Commit(
        seq_lens=oracle.prefix_lens + _lengths(paths),
        kv=tuple(LayerCommit(layer, nodes) for layer in range(LAYERS)),
        recurrent_index=np.array([path[-1] for path in paths], np.int64),
        hidden_rows=nodes,
    )


def _lengths(paths: Paths) -> Int64:
    return np.array([len(path) for path in paths], np.int64)

"""RawStep to VerifyStep: numbers as they were seen, in the names and the order of the step format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.sglang.outcome import commit_of, outcome_of
from engine.sglang.raw import RawStep, cells_of
from engine.sglang.trees import links_within, parents_of
from engine.step import (
    Config,
    Inputs,
    Int64,
    Links,
    Request,
    Source,
    TreeRecord,
    UInt8,
    VerifyStep,
)


@dataclass(frozen=True)
class Origin:
    """Which process of which server."""

    version: str = "unknown"
    rank: int = 0  # among those that verify the same batch
    world_size: int = 1
    model: str | None = None
    group: str = ""  # data-parallel and pipeline place; "" where there is one


def assemble(step: RawStep, origin: Origin) -> VerifyStep:
    """The record. Raises ``ValueError`` for arrays that do not fit together."""
    count, rows = len(step.rids), step.laid.rows
    tokens = _live(step, "draft_token", count * rows)
    by_request = tokens.reshape(count, rows)
    parents = parents_of(step, by_request)
    sizes = [len(own) for own in parents]
    return VerifyStep(
        requests=_requests(step, parents, by_request),
        step=step.number,
        rank=origin.rank,
        world_size=origin.world_size,
        source=_source(step, origin),
        config=_config(step),
        inputs=_inputs(step),
        links=_links(step, sizes),
        outcome=outcome_of(step),
        commit=commit_of(step),
        logits_dtype=step.logits_dtype,
    )


def _live(step: RawStep, name: str, length: int) -> Int64:
    found = step.ints(name)
    if found is None or found.size < length:
        shown = "none" if found is None else str(found.size)
        raise ValueError(f"{name}: expected {length} entries, found {shown}")
    return found.reshape(-1)[:length]


def _captured(step: RawStep) -> int:
    """Requests that the arrays cover: the padded ones only where all of their rows were seen."""
    return step.laid.captured_bs if step.laid.padded else len(step.rids)


def _source(step: RawStep, origin: Origin) -> Source:
    return Source(
        engine="sglang",
        engine_version=origin.version,
        attention_backend="triton",
        model=origin.model,
        deterministic=step.laid.deterministic,
        graph=step.laid.graph,
        raw_bs=len(step.rids),
        captured_bs=_captured(step),
    )


def _config(step: RawStep) -> Config:
    laid, stops = step.laid, None if step.ends is None else step.ends.stops
    masked = step.array("custom_mask") is not None
    return Config(
        budget=laid.rows - 1,
        topk=step.topk,
        temperature=0.0 if step.greedy else None,
        verify_rows="static",
        num_draft_tokens=laid.width,
        vocab_size=step.vocab_size,
        eos_token_ids=np.array(stops, np.int64) if stops else None,
        page_size=step.page_size,
        pool_size=laid.pool_size,
        padding_slot=0,
        mask_layout="full" if masked else None,
        mask_encoding="bytes" if masked else None,
        mask_capacity=laid.mask_capacity,
        max_context=laid.max_context,
        kv_indptr_counts_draft=False,
        kv_indptr_unit="token",
    )


def _requests(step: RawStep, parents: list[Int64], tokens: Int64) -> tuple[Request, ...]:
    lengths = _live(step, "prefix_lens", len(step.rids))
    slots = step.ints("prefix_slots")
    return tuple(
        Request(
            rid=rid,
            prefix_len=int(length),
            tree=TreeRecord(own, tokens[index][: len(own)]),
            prefix_slots=None
            if slots is None or slots.shape[1] < length
            else slots[index, : int(length)],
        )
        for index, (rid, own, length) in enumerate(
            zip(step.rids, parents, lengths.tolist(), strict=True)
        )
    )


def _inputs(step: RawStep) -> Inputs:
    """Arrays of the captured batch where its padding was seen, else of the live requests alone."""
    count, rows, padded = _captured(step), step.laid.rows, step.laid.padded
    names = ("input_ids", "positions", "out_cache_loc")
    own = ("draft_token", "own_positions", "own_out_cache_loc")
    ids, positions, slots = (
        _first(step.ints(name), count * rows) for name in (names if padded else own)
    )
    kv_indptr = _first(step.ints("kv_indptr"), count + 1)
    mask = _mask(step, count)
    return Inputs(
        input_ids=ids,
        positions=positions,
        seq_lens=_first(step.ints("seq_lens"), count),
        qo_indptr=_first(step.ints("qo_indptr"), count + 1),
        kv_indptr=kv_indptr,
        kv_indices=_kv_indices(step, kv_indptr),
        max_extend_len=step.laid.max_extend_len,
        mask_indptr=_first(step.ints("mask_indptr"), count + 1),
        custom_mask=mask,
        out_cache_loc=slots,
    )


def _kv_indices(step: RawStep, kv_indptr: Int64 | None) -> Int64 | None:
    """As far as ``kv_indptr`` says; None where the copy had to end before that."""
    found = step.ints("kv_indices")
    if found is None or kv_indptr is None:
        return found
    used = max(0, int(kv_indptr[-1]))
    return None if step.laid.blind and used > len(found) else found[:used]


def _mask(step: RawStep, count: int) -> UInt8 | None:
    """Cells that are used; None where the copy had to end before that."""
    found, lengths = step.array("custom_mask"), step.ints("seq_lens")
    if found is None:
        return None
    mask = found.reshape(-1).astype(np.uint8)
    if lengths is None:
        return mask
    used = cells_of(step.laid, lengths[:count].tolist())
    return None if step.laid.blind and used > len(mask) else mask[:used]


def _first(array: Int64 | None, count: int) -> Int64 | None:
    return None if array is None else array.reshape(-1)[:count]


def _links(step: RawStep, sizes: list[int]) -> Links:
    return Links(_link(step, "next_token", sizes), _link(step, "next_sibling", sizes))


def _link(step: RawStep, name: str, sizes: list[int]) -> tuple[Int64, ...] | None:
    found = step.ints(name)
    if found is None:
        return None
    table = found.reshape(len(sizes), -1)
    return tuple(links_within(row, size) for row, size in zip(table, sizes, strict=True))

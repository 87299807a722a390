"""Outcome and commit of a RawStep: the walk before stops cut it, what was emitted, which node each slot holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.sglang.moved import committed
from engine.sglang.raw import RawStep
from engine.step import Commit, Float64, Int64, LayerCommit, Outcome


def outcome_of(step: RawStep) -> Outcome:
    """What verification decided; sampled steps have no prediction but on their accepted path."""
    lengths, paths = step.ints("accept_lens"), step.ints("accept_index")
    count = len(step.rids)
    if paths is not None:
        paths = paths.reshape(count, -1)
    elif lengths is not None and step.tree.kind == "chain":
        paths = _first_rows(lengths.reshape(-1)[:count], step.laid.rows)
    greedy = bool(step.greedy)
    best = _best(step)
    return Outcome(
        target_predict=None if best is None or not greedy else best[0][:, 0],
        top2=None if best is None or not greedy else np.stack(best, axis=-1),
        # NaN and +inf are largest; -inf alone is what grammars leave behind
        finite_rows=None if best is None else np.isfinite(best[1][:, 0]),
        accept_index=None if paths is None else tuple(paths),
        accept_length=None if lengths is None else lengths.reshape(-1)[:count],
        bonus_tokens=_bonus(step, paths, lengths),
        emitted=_emitted(step, lengths),
    )


def commit_of(step: RawStep) -> Commit:
    """State after the step, where verification commits by itself; unknown where a finished request was cut."""
    lengths, new = step.ints("accept_lens"), step.ints("committed_lens")
    before = step.ints("prefix_lens")
    if step.array("kv_after") is not None:
        return Commit(kv=_moved(step))
    if new is None or lengths is None or before is None or step.ends is None:
        return Commit()
    count = len(step.rids)
    kept = new[:count] - before[:count]
    cut = kept != lengths.reshape(-1)[:count]
    if any(cut[i] and done for i, done in enumerate(step.ends.finished)):
        return Commit()
    return Commit(seq_lens=new[:count], kv=_kv(step, before, kept))


def _first_rows(lengths: Int64, rows: int) -> Int64:
    """A chain's accepted rows, flat, -1 padded: [requests, rows]."""
    nodes = np.arange(rows, dtype=np.int64)
    flat = nodes + np.arange(len(lengths), dtype=np.int64)[:, None] * rows
    return np.where(nodes < lengths[:, None], flat, -1)


def _best(step: RawStep) -> tuple[Int64, Float64] | None:
    """Tokens and logits [rows, 2] of the two best of each row."""
    found = step.array("top2")
    if found is None:
        return None
    return best_of_parts(found)


def best_of_parts(parts: NDArray[np.int32]) -> tuple[Int64, Float64]:
    """Tokens and logits [rows, 2] of the two best of each row, of what :func:`engine.sglang.top2.top2` found."""
    if not parts.size:
        return np.zeros((len(parts), 2), np.int64), np.zeros((len(parts), 2))
    rows = len(parts)
    tokens = parts[:, :, :2].reshape(rows, -1).astype(np.int64)
    tokens[tokens == np.iinfo(np.int32).max] = -1  # beside NaN
    bits = np.ascontiguousarray(parts[:, :, 2:])
    logits = bits.view(np.float32).reshape(rows, -1).astype(np.float64)
    if parts.shape[1] > 1:
        numbers = ~np.isnan(logits)  # NaN is largest, then what is larger, then the lower token
        order = np.lexsort((tokens, -np.where(numbers, logits, 0.0), numbers))[:, :2]
        return np.take_along_axis(tokens, order, 1), np.take_along_axis(logits, order, 1)
    return tokens, logits


def _bonus(step: RawStep, paths: Int64 | None, lengths: Int64 | None) -> Int64 | None:
    """Verification's own bonus, else its prediction at the end of each path; None where a path has no end."""
    own = step.ints("bonus")
    if own is not None:
        return own.reshape(-1)[: len(step.rids)]
    predict = step.ints("predict")
    if predict is None and step.greedy:
        best = _best(step)
        predict = None if best is None else best[0][:, 0]
    if predict is None or paths is None or lengths is None:
        return None
    flat, bonus = predict.reshape(-1), []
    for path, length in zip(paths, lengths.reshape(-1).tolist(), strict=True):
        row = int(path[length - 1]) if 0 < length <= len(path) else -1
        if not 0 <= row < len(flat):
            return None
        bonus.append(int(flat[row]))
    return np.array(bonus, np.int64)


def _emitted(step: RawStep, lengths: Int64 | None) -> tuple[Int64, ...] | None:
    """None where a request ended for another reason than a stop token: the cut is the scheduler's, no fault."""
    if step.ends is None or lengths is None:
        return None
    own = [np.array(tokens, np.int64) for tokens in step.ends.emitted]
    for tokens, done, length in zip(own, step.ends.finished, lengths.reshape(-1), strict=False):
        stopped = len(tokens) and int(tokens[-1]) in step.ends.stops
        if done and len(tokens) != length and not stopped:
            return None
    return tuple(own)


def _moved(step: RawStep) -> tuple[LayerCommit, ...] | None:
    """From the fingerprints around the move; None where the paths are not known."""
    before, after = step.ints("kv_before"), step.ints("kv_after")
    index, lengths = step.ints("accept_index"), step.ints("accept_lens")
    if before is None or after is None or index is None or lengths is None:
        return None
    count, rows = len(step.rids), step.laid.rows
    paths = [
        row[: int(length)] - place * rows
        for place, (row, length) in enumerate(
            zip(index.reshape(count, -1), lengths.reshape(-1), strict=False)
        )
    ]
    return committed(before, after, paths, rows)


def _kv(step: RawStep, before: Int64, kept: Int64) -> tuple[LayerCommit, ...] | None:
    """Nodes whose slots the request table names after the step. All layers share the table: layer 0 stands for them."""
    table, slots = step.ints("committed_slots"), step.ints("own_out_cache_loc")
    if table is None or slots is None or (before + kept).max(initial=0) > table.shape[1]:
        return None
    rows = step.laid.rows
    nodes = []
    for index, (start, length) in enumerate(zip(before.tolist(), kept.tolist(), strict=True)):
        places = {int(s): n for n, s in enumerate(slots[index * rows : (index + 1) * rows])}
        found = table[index, start : start + length].tolist()
        nodes.append(np.array([places.get(slot, -1) for slot in found], np.int64))
    return (LayerCommit(0, tuple(nodes)),)

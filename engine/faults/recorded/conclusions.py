"""What follows from a walk: the outcome and the commit of a step for other accepted paths. No fault by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.decoding.stages import CORRECT
from engine.faults.recorded.edit import ints, need, rows_of, tokens_of, with_commit, with_outcome
from engine.step import Int64, VerifyStep


def walked(step: VerifyStep) -> list[list[int]]:
    """Accepted nodes of each live request by the engine's walk over its recorded links, tokens and predictions."""
    predict = need(step.outcome.target_predict, "outcome.target_predict")
    ids = need(step.inputs.input_ids, "inputs.input_ids")
    next_token = need(step.links.retrieve_next_token, "links.retrieve_next_token")
    next_sibling = need(step.links.retrieve_next_sibling, "links.retrieve_next_sibling")
    return [
        CORRECT.walk(
            next_token[i].tolist(),
            next_sibling[i].tolist(),
            ids[rows_of(step, i)].tolist(),
            predict[rows_of(step, i)].tolist(),
        )
        for i in range(step.raw_bs)
    ]


def concluded(
    step: VerifyStep, paths: Sequence[Sequence[int]], bonus: Sequence[int] | None = None
) -> VerifyStep:
    """The step that accepted these nodes (root first, one list a live request), with all that follows from them.

    ``bonus``: one token a request; what the last row of each path predicts where it is not given.
    """
    starts = [rows_of(step, i).start for i in range(step.raw_bs)]
    if bonus is None:
        predict = need(step.outcome.target_predict, "outcome.target_predict")
        bonus = [int(predict[start + path[-1]]) for start, path in zip(starts, paths, strict=True)]
    stops = () if step.config.eos_token_ids is None else tuple(step.config.eos_token_ids.tolist())
    emitted = [
        CORRECT.emit([*(int(tokens_of(step, i)[node]) for node in path[1:]), bonus[i]], stops)
        for i, path in enumerate(paths)
    ]
    decided = with_outcome(
        step,
        accept_index=accept_index(step, paths),
        accept_length=ints([len(path) for path in paths]),
        bonus_tokens=ints(bonus),
        emitted=tuple(map(ints, emitted)),
    )
    return _committed(decided, paths)


def accept_index(step: VerifyStep, paths: Sequence[Sequence[int]]) -> tuple[Int64, ...]:
    """Flat rows of the paths, padded with -1 to the width that is recorded."""
    width = max(
        *(len(rows) for rows in need(step.outcome.accept_index, "outcome.accept_index")),
        *map(len, paths),
    )
    flat = [[rows_of(step, i).start + node for node in path] for i, path in enumerate(paths)]
    return tuple(
        np.pad(ints(rows), (0, width - len(rows)), constant_values=-1).astype(np.int64)
        for rows in flat
    )


def _committed(step: VerifyStep, paths: Sequence[Sequence[int]]) -> VerifyStep:
    commit, nodes = step.commit, tuple(map(ints, paths))
    lengths = [r.prefix_len + len(path) for r, path in zip(step.requests, paths, strict=True)]
    last = ints([path[-1] for path in paths])
    return with_commit(
        step,
        seq_lens=ints(lengths),
        kv=None if commit.kv is None else tuple(replace(layer, nodes=nodes) for layer in commit.kv),
        recurrent_index=None if commit.recurrent_index is None else last,
        hidden_rows=None if commit.hidden_rows is None else nodes,
    )

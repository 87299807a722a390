"""Recorded steps, made up: the story's chain, random trees, and what goes wrong with metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.layout import VISIBLE, indptr
from engine.oracle import Oracle
from engine.step import Config, Inputs, Request, Source, TreeRecord, VerifyStep


def ints(values: Any) -> np.ndarray:
    return np.asarray(values, np.int64)


def step_of(
    trees: list[list[int]],
    prefixes: list[int],
    *,
    budget: int,
    width: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    window: int | None = None,
    cells: list[np.ndarray] | None = None,
) -> VerifyStep:
    """A step whose arrays follow from trees and prefix lengths; ``width``: rows that the backend believes in.

    ``cells``: the mask of each request, [q_len, prefix + q_len], in place of the trees'.
    """
    generator = np.random.default_rng(seed)
    total, rows = sum(prefixes), len(trees) * (budget + 1)
    slots = generator.permutation(total + rows + 3) + 1
    requests, first = [], 0
    for i, (parents, prefix) in enumerate(zip(trees, prefixes, strict=True)):
        record = TreeRecord(ints(parents), ints(range(len(parents))))
        requests.append(Request(f"r{i}", prefix, record, ints(slots[first : first + prefix])))
        first += prefix
    config = Config(budget=budget, verify_rows="static", sliding_window=window)
    source = Source("test", "0", "triton", "none", deterministic, "eager", len(trees), len(trees))
    bare = VerifyStep(tuple(requests), source=source, config=config)
    oracle, used = Oracle(bare), width or budget + 1
    if cells is None:
        cells = [oracle.intended(i).cells == VISIBLE for i in range(len(trees))]
    inputs = Inputs(
        seq_lens=ints(prefixes),
        qo_indptr=ints(np.arange(len(trees) + 1) * used),
        kv_indptr=indptr(ints(prefixes)),
        kv_indices=ints(slots[:total]),
        max_extend_len=used,
        mask_indptr=indptr(used * (ints(prefixes) + used)),
        custom_mask=np.concatenate([c.ravel() for c in cells]).astype(np.uint8),
        out_cache_loc=ints(slots[total : total + rows]),
    )
    return replace(bare, inputs=inputs)


def with_inputs(step: VerifyStep, **inputs: Any) -> VerifyStep:
    arrays = {k: ints(v) if isinstance(v, list) else v for k, v in inputs.items()}
    return replace(step, inputs=replace(step.inputs, **arrays))


CHAIN = [-1, 0, 1, 2, 3, 4, 5, 6]


def story(width: int | None) -> VerifyStep:
    """Prefix 5, a chain of 8 real nodes in 17 rows."""
    return step_of([CHAIN], [5], budget=16, width=width)

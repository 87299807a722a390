"""Synthetic verify steps: a clean server, and the same with width 8 used for 17 rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from engine.layout import VISIBLE, indptr
from engine.oracle import Oracle
from engine.step import (
    Commit,
    Config,
    Extras,
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

WORDS = [
    " The",
    " ocean",
    " sea",
    "'s",
    " wide",
    " deep",
    "\n",
    " Tides",
    "<b>x</b>",
    " of",
    " blue",
]
WORDS += [
    " water",
    " whale",
    " salt",
    " swim",
    " foam",
    " shore",
    " wind",
    " gull",
    " reef",
    " kelp",
]
PARENTS_17 = [-1, 0, 0, 1, 1, 3, 3, 2, 5, 5, 7, 8, 8, 6, 11, 10, 14]
PARENTS_9 = PARENTS_17[:9]
BROKEN_WIDTH = 8


def _ints(values) -> np.ndarray:
    return np.asarray(values, np.int64)


def _request(index: int, prefix_len: int, parents: list[int]) -> Request:
    count = len(parents)
    tokens = [(3 * index + node) % len(WORDS) for node in range(count)]
    weights = -0.21 * np.arange(count)
    record = TreeRecord(_ints(parents), _ints(tokens), weights)
    slots = _ints(range(100 * index + 1, 100 * index + 1 + prefix_len))
    return Request(f"r{index}", prefix_len, record, slots)


def make_step(
    step: int = 0,
    *,
    bs: int = 1,
    width: int | None = None,
    prefix_len: int = 14,
    parents: list[int] = PARENTS_17,
    rank: int = 0,
    budget: int = 16,
    with_reference: bool = True,
) -> VerifyStep:
    """A clean step; with ``width`` the backend lays out that many rows instead of budget + 1."""
    requests = tuple(_request(i, prefix_len + 5 * i + 3 * step, parents) for i in range(bs))
    config = Config(
        budget=budget,
        block_size=8,
        topk=4,
        temperature=0.0,
        verify_rows="static",
        num_draft_tokens=width or budget + 1,
        vocab_size=64,
        mask_layout="full",
        mask_encoding="bytes",
        index_dtype="int64",
        kv_indptr_counts_draft=False,
    )
    source = Source("workbench", "0", "triton", "tiny", False, "eager", bs, bs)
    bare = VerifyStep(requests, step=step, rank=rank, source=source, config=config)
    oracle = Oracle(bare)
    geometry = oracle.geometry
    used = width or budget + 1
    prefixes = oracle.prefix_lens
    rows = int(geometry.qo_indptr[-1])
    mask = np.concatenate([(oracle.intended(i).cells == VISIBLE).ravel() for i in range(bs)])
    inputs = Inputs(
        input_ids=_ints(_per_row(oracle, [r.tree.tokens for r in requests], budget + 1, 0)),
        positions=_ints(_per_row(oracle, [oracle.positions(i) for i in range(bs)], budget + 1, 0)),
        seq_lens=prefixes,
        qo_indptr=_ints(np.arange(bs + 1) * used),
        kv_indptr=indptr(prefixes),
        kv_indices=np.concatenate([r.prefix_slots for r in requests]),
        max_extend_len=used,
        mask_indptr=indptr(used * (prefixes + used)),
        custom_mask=mask.astype(np.uint8),
        out_cache_loc=_ints(range(900, 900 + rows)),
    )
    predict, reference = _predictions(oracle, broken=width is not None and width != budget + 1)
    paths = [oracle.accepted_nodes(i, predict) for i in range(bs)]
    firsts = geometry.qo_indptr[:bs]
    bonus = [int(predict[firsts[i] + paths[i][-1]]) for i in range(bs)]
    emitted = [
        [*(int(oracle.trees[i].tokens[n]) for n in paths[i][1:]), bonus[i]] for i in range(bs)
    ]
    links = [oracle.links(i) for i in range(bs)]
    return VerifyStep(
        requests,
        step=step,
        rank=rank,
        source=source,
        config=config,
        inputs=inputs,
        links=Links(tuple(a for a, _ in links), tuple(b for _, b in links)),
        outcome=Outcome(
            target_predict=predict,
            top2=_top2(predict),
            accept_index=tuple(_ints([firsts[i] + n for n in paths[i]]) for i in range(bs)),
            accept_length=_ints([len(p) for p in paths]),
            bonus_tokens=_ints(bonus),
            emitted=tuple(map(_ints, emitted)),
        ),
        commit=Commit(
            kv=(LayerCommit(0, tuple(map(_ints, paths))),),
            hidden_rows=tuple(map(_ints, paths)),
        ),
        reference=Reference(reference if with_reference else None, None),
        logits_dtype="float32",
        workbench=Extras(
            token_texts=dict(enumerate(WORDS)),
            max_logit_diff=np.where(predict == reference, 0.0004, 3.2),
            drafter_ranks=tuple(_ints(np.arange(len(parents)) % 4) for _ in range(bs)),
        ),
    )


def continued(steps: list[VerifyStep]) -> list[VerifyStep]:
    """The same steps, each rank's roots being the bonus tokens of its step before."""
    out, bonus = [], {}
    for step in steps:
        ids = step.inputs.input_ids
        requests = list(step.requests)
        for i, request in enumerate(requests):
            root = bonus.get((step.rank, request.rid))
            if root is not None and request.tree.tokens is not None and ids is not None:
                tokens, ids = request.tree.tokens.copy(), ids.copy()
                tokens[0] = ids[int(Oracle(step).geometry.qo_indptr[i])] = root
                requests[i] = replace(request, tree=replace(request.tree, tokens=tokens))
        out.append(
            replace(step, requests=tuple(requests), inputs=replace(step.inputs, input_ids=ids))
        )
        if step.outcome.bonus_tokens is not None:
            for request, token in zip(step.requests, step.outcome.bonus_tokens, strict=False):
                bonus[step.rank, request.rid] = int(token)
    return out


def _per_row(oracle: Oracle, real: list, q_len: int, fill: int) -> np.ndarray:
    parts = [np.pad(part, (0, q_len - len(part)), constant_values=fill) for part in real]
    return np.concatenate(parts)


def _predictions(oracle: Oracle, *, broken: bool) -> tuple[np.ndarray, np.ndarray]:
    """Choices along each tree's third path; a broken run leaves it at the second token."""
    rows = int(oracle.geometry.qo_indptr[-1])
    predict, reference = np.full(rows, 20), np.full(rows, 20)
    for i, tree in enumerate(oracle.trees):
        first = int(oracle.geometry.qo_indptr[i])
        path = tree.paths[min(8, tree.num_nodes - 1)]
        for node, child in pairwise(path):
            reference[first + node] = tree.tokens[child]
    predict[:] = reference
    if broken:
        for i, tree in enumerate(oracle.trees):
            first = int(oracle.geometry.qo_indptr[i])
            path = tree.paths[min(8, tree.num_nodes - 1)]
            predict[first + path[1]] = 13
    return predict.astype(np.int64), reference.astype(np.int64)


def _top2(predict: np.ndarray) -> np.ndarray:
    top2 = np.zeros((len(predict), 2, 2))
    top2[:, 0, 0], top2[:, 1, 0] = predict, (predict + 1) % 20
    top2[:, 0, 1], top2[:, 1, 1] = 12.5, 11.25
    return top2


def broken_step(step: int = 0, **arguments) -> VerifyStep:
    """Width 8 (``num_draft_tokens``) used for 17 rows."""
    return make_step(step, width=BROKEN_WIDTH, **arguments)


HOSTILE_TEXTS = (
    "<b>x</b>",
    "<script>alert(1)</script>",
    "%{x}{y}",
    "$a$ `b` [c](javascript:d) :red[e] **f**",
    "\u202e\x00\x1b[31m",
    "‮" * 3 + "x" * 5000,
)


def hostile_steps() -> list[VerifyStep]:
    """Steps that a stranger might send: a cycle, nothing recorded, nobody there, texts that are
    markup.
    """
    clean = make_step(0)
    texts = dict(enumerate(HOSTILE_TEXTS * 4))
    marked = replace(clean, workbench=replace(clean.workbench, token_texts=texts))
    cycle = _ints([-1, 2, 1, 0])
    bare = Request("<i>r</i> `x`", 3, TreeRecord(cycle, _ints([1, 2, 3, 4])))
    return [
        marked,
        VerifyStep((Request("r0", 3, TreeRecord(_ints([-1, 0, 0]))),), step=1),
        VerifyStep((bare,), step=2, config=Config(budget=5), inputs=clean.inputs),
        VerifyStep((), step=3),
        replace(broken_step(4), outcome=Outcome(), links=Links(), commit=Commit()),
    ]

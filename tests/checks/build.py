"""Clean steps by plain loops, independent of the engine's builders; literal trees; ways to spoil a step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.checks.finding import Finding
from engine.checks.registry import check_trace
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
from tests.factories import ints
from tests.factories import trees as random_trees

CHAIN = chain([1, 2, 3, 4, 5, 6])
BUSHY = make_tree([-1, 0, 0, 0, 1, 1, 2, 4, 4, 6], [1, 2, 3, 4, 5, 6, 5, 7, 8, 9])
MIXED = make_tree([-1, 0, 1, 2, 0, 3, 4], [1, 2, 3, 4, 5, 6, 7])
UNMATCHED = 90  # row r predicts token 90 + r unless its path goes on
PADDING_SLOT = 0
STALE = 7  # what padding rows hold


def ancestors(tree: DraftTree, node: int) -> list[int]:
    """The node and everything above it, by climbing."""
    line = [node]
    while line[-1] != 0:
        line.append(int(tree.parents[line[-1]]))
    return line


def mask_of(tree: DraftTree, prefix: int, rows: int, window: int | None) -> np.ndarray:
    """Mask of one request, cell by cell; padding rows see everything."""
    cells = np.ones((rows, prefix + rows), np.uint8)
    for node in range(tree.num_nodes):
        line = ancestors(tree, node)
        position = prefix + len(line) - 1
        for column in range(prefix + rows):
            other = column - prefix
            if other < 0:
                near, allowed = column, True
            else:
                allowed = other in line
                near = prefix + len(ancestors(tree, other)) - 1 if allowed else 0
            cells[node, column] = allowed and (window is None or position - near < window)
    return cells


def links_of(tree: DraftTree, rows: int) -> tuple[np.ndarray, np.ndarray]:
    token, sibling = np.full(rows, -1), np.full(rows, -1)
    for node in range(tree.num_nodes - 1, 0, -1):
        parent = int(tree.parents[node])
        sibling[node] = token[parent]
        token[parent] = node
    return token, sibling


def lengths_to_indptr(lengths: list[int]) -> np.ndarray:
    out = [0]
    for length in lengths:
        out.append(out[-1] + length)
    return ints(*out)


def clean(
    trees: list[DraftTree],
    prefixes: list[int],
    paths: list[list[int]],
    *,
    budget: int,
    ragged: bool = False,
    layout: str = "full",
    encoding: str = "bytes",
    window: int | None = None,
    padded: int = 0,
    backend: str = "triton",
    number: int = 0,
    full: bool = False,
    page: int | None = None,
    counts_draft: bool = False,
) -> VerifyStep:
    """A step as a correct engine hands it out. ``paths``: accepted nodes of each request, root first.

    ``full``: every optional field of the format is filled in; ``page``: ``kv_indices`` holds pages of so many tokens.
    """
    rows = [tree.num_nodes if ragged else budget + 1 for tree in trees]
    rows += [1 if ragged else budget + 1] * padded
    prefix_lens = [*prefixes, *[1] * padded]
    starts = lengths_to_indptr(rows)
    total = int(starts[-1])
    ids, positions = np.full(total, STALE), np.zeros(total, np.int64)
    slots = np.arange(total) + 1000
    slots[starts[len(trees)] :] = PADDING_SLOT
    predict = UNMATCHED + np.arange(total)
    masks, links = [], []
    for i, tree in enumerate(trees):
        first = int(starts[i])
        ids[first : first + tree.num_nodes] = tree.tokens
        for node in range(tree.num_nodes):
            positions[first + node] = prefixes[i] + len(ancestors(tree, node)) - 1
        for parent, child in pairwise(paths[i]):
            predict[first + parent] = tree.tokens[child]
        mask = mask_of(tree, prefixes[i], rows[i], window)
        masks.append(mask if layout == "full" else mask[:, prefixes[i] :])
        links.append(links_of(tree, rows[i]))
    for i in range(len(trees), len(rows)):
        masks.append(np.zeros((rows[i], rows[i] + (layout == "full")), np.uint8))
    flat = [mask.flatten() for mask in masks]
    packed = [np.packbits(cells, bitorder="little") for cells in flat]
    widest = max(map(len, paths)) + 1
    bs = range(len(trees))
    owned = owned_slots(prefixes, [rows[i] for i in bs], page)
    if page is not None:
        for i in bs:
            slots[starts[i] : starts[i + 1]] = owned[i][prefixes[i] :]
    elif not full:
        owned = []
    bonuses = [int(predict[starts[i] + paths[i][-1]]) for i in bs]
    step = VerifyStep(
        requests=tuple(
            Request(f"r{i}", prefixes[i], TreeRecord(t.parents, t.tokens, t.log_weights))
            for i, t in enumerate(trees)
        ),
        step=number,
        source=Source(
            attention_backend=backend,
            deterministic=False,
            graph="replay" if padded else "eager",
            raw_bs=len(trees),
            captured_bs=len(rows),
        ),
        config=Config(
            budget=budget,
            block_size=64,
            temperature=0.0,
            verify_rows="ragged" if ragged else "static",
            num_draft_tokens=budget + 1,
            mask_layout=layout,
            padding_slot=PADDING_SLOT,
            mask_encoding=encoding,
            sliding_window=window,
            kv_indptr_counts_draft=counts_draft,
        ),
        inputs=Inputs(
            input_ids=ids.astype(np.int64),
            positions=positions,
            seq_lens=ints(*prefix_lens),
            qo_indptr=starts,
            kv_indptr=lengths_to_indptr(prefix_lens),
            kv_indices=np.arange(sum(prefix_lens)) + 500,
            max_extend_len=max(rows),
            mask_indptr=lengths_to_indptr([len(cells) for cells in flat]),
            byte_indptr=lengths_to_indptr([len(part) for part in packed])
            if encoding == "bits"
            else None,
            custom_mask=np.concatenate(packed if encoding == "bits" else flat),
            out_cache_loc=slots,
        ),
        links=Links(tuple(t for t, _ in links), tuple(s for _, s in links)),
        outcome=Outcome(
            target_predict=predict.astype(np.int64),
            accept_index=tuple(
                ints(*(int(starts[i]) + n for n in paths[i]), *[-1] * (widest - len(paths[i])))
                for i in bs
            ),
            accept_length=ints(*map(len, paths)),
            bonus_tokens=ints(*bonuses),
        ),
        commit=Commit(
            seq_lens=ints(*(prefixes[i] + len(paths[i]) for i in bs)),
            kv=tuple(LayerCommit(n, tuple(ints(*path) for path in paths)) for n in (0, 3)),
        ),
        reference=Reference(target_predict=predict.astype(np.int64)),
        logits_dtype="float32",
    )
    if not (full or page or counts_draft):
        return step
    return with_everything(step, paths, owned, rows, page)


SLOTS = 1 << 16  # of the pool
FIRST_SLOT = 500  # of the first request's prefix; draft rows begin at slot 1000


def owned_slots(prefixes: list[int], rows: list[int], page: int | None) -> list[list[int]]:
    """Slots of each request's committed tokens, then of its rows: pages of its own, or wherever there is room."""
    if page is not None:
        return [
            [page * 100 * (i + 1) + n for n in range(prefix + count)]
            for i, (prefix, count) in enumerate(zip(prefixes, rows, strict=True))
        ]
    out, at, row = [], FIRST_SLOT, 1000
    for prefix, count in zip(prefixes, rows, strict=True):
        out.append([*range(at, at + prefix), *range(row, row + count)])
        at, row = at + prefix, row + count
    return out


def with_everything(
    step: VerifyStep,
    paths: list[list[int]],
    owned: list[list[int]],
    rows: list[int],
    page: int | None,
) -> VerifyStep:
    """The step with the fields that :func:`clean` leaves out."""
    requests, counts = step.requests, bool(step.config.kv_indptr_counts_draft)
    lengths = [int(n) for n in step.inputs.seq_lens]
    tokens = [n + (rows[i] if counts else 0) for i, n in enumerate(lengths)]
    unit, listed = page or 1, []
    for i, count in enumerate(tokens):
        slots = owned[i] if i < len(owned) else [PADDING_SLOT] * count
        listed += [slots[at] // unit for at in range(0, count, unit)]
    everything = [
        *(
            (f"requests.{i}.prefix_slots", ints(*owned[i][: r.prefix_len]))
            for i, r in enumerate(requests)
        ),
        ("config.page_size", unit),
        ("config.kv_indptr_unit", "token" if page is None else "page"),
        ("config.pool_size", SLOTS),
        ("config.vocab_size", 1000),
        ("config.max_position", 200),
        ("config.index_dtype", "int64"),
        ("config.eos_token_ids", ints(999)),
        ("config.mask_token_id", 998),
        ("config.max_context", 100),
        ("config.mask_capacity", sum(n * (100 + n) for n in rows)),
        ("inputs.kv_indptr", lengths_to_indptr([-(-n // unit) for n in tokens])),
        ("inputs.kv_indices", ints(*listed)),
        (
            "inputs.kv_last_page_len",
            None if page is None else ints(*((n - 1) % unit + 1 for n in tokens)),
        ),
        ("outcome.finite_rows", np.ones(sum(rows), np.bool_)),
        (
            "outcome.emitted",
            tuple(
                ints(*(int(r.tree.tokens[n]) for n in path[1:]), int(bonus))
                for r, path, bonus in zip(requests, paths, step.outcome.bonus_tokens, strict=True)
            ),
        ),
        ("commit.recurrent_index", ints(*(path[-1] for path in paths))),
        ("commit.hidden_rows", tuple(ints(*path) for path in paths)),
    ]
    return spoil(step, *everything)


def on_ranks(step: VerifyStep, world_size: int) -> list[VerifyStep]:
    """The same step on several ranks."""
    return [spoil(step, ("rank", n), ("world_size", world_size)) for n in range(world_size)]


def rooted(tree: DraftTree, token: int) -> DraftTree:
    """The tree with another root token: the bonus of the step before."""
    return make_tree(tree.parents.tolist(), [token, *tree.tokens[1:].tolist()])


def batch(**options: Any) -> VerifyStep:
    """Three requests: a chain (rows 0-9), a bushy tree (rows 10-19), a mixed tree (rows 20-29).

    Budget 9, so 10 rows each; prefixes 2, 5, 3; cells of the full layout start at 0, 120, 270 and end at 400.
    """
    paths = [[0, 1, 2], [0, 1, 4, 7], [0, 4, 6]]
    return clean([CHAIN, BUSHY, MIXED], [2, 5, 3], paths, budget=9, **options)


def put(record: Any, path: str, value: Any) -> Any:
    """The record with another value at a dotted path; a number indexes a tuple or an array."""
    name, _, rest = path.partition(".")
    old = record[int(name)] if name.isdigit() else getattr(record, name)
    new = put(old, rest, value) if rest else value
    if isinstance(record, np.ndarray):
        out = record.copy()
        out[int(name)] = new
        return out
    if isinstance(record, tuple):
        return (*record[: int(name)], new, *record[int(name) + 1 :])
    return replace(record, **{name: new})


def spoil(step: VerifyStep, *changes: tuple[str, Any]) -> VerifyStep:
    """The step with several changes, each ``(path, value)``."""
    for path, value in changes:
        step = put(step, path, value)
    return step


# Checks that this folder's tables cover; a skipped one must name what it lacks.
COVERED = ("I1", "I2", "I4", "I7", "I8", "I10", "I12", "I13", "I14", "I15", "I22")
EVERY = (*(f"I{n}" for n in range(1, 21)), "I22")


def skipped(*steps: VerifyStep) -> dict[str, str]:
    """``{check: message}`` of the covered checks that found nothing to work on."""
    return {f.check: f.message for f in check_trace(steps).skipped if f.check in COVERED}


def findings(*steps: VerifyStep) -> list[Finding]:
    return list(check_trace(steps).findings)


def causes(*steps: VerifyStep) -> list[Finding]:
    return list(check_trace(steps).causes)


def short(finding: Finding) -> tuple[Any, ...]:
    """(check, diagnosis, effect, verdict, request, node, row, column, byte, expected, found, count)."""
    where = finding.where
    return (
        finding.check,
        finding.diagnosis,
        str(finding.effect),
        str(finding.verdict),
        finding.request,
        where.node,
        where.row,
        where.column,
        where.byte,
        finding.expected,
        finding.found,
        finding.count,
    )


def only(*steps: VerifyStep) -> Finding:
    """The one cause, which is also the first finding; everything else is its consequence."""
    found = findings(*steps)
    roots = [finding for finding in found if finding.consequence_of is None]
    assert len(roots) == 1, [(f.check, f.diagnosis, f.request, f.message) for f in roots]
    assert found[0] is roots[0]
    return roots[0]


@st.composite
def clean_steps(
    draw: st.DrawFn,
    *,
    number: int = 0,
    plain: bool = False,
    before: VerifyStep | None = None,
    **fixed: Any,
) -> VerifyStep:
    """Clean steps of random batches with every field; ``plain``: static, byte per cell, full layout, no window, eager.

    ``before``: the step before, whose requests go on.
    """
    size = st.integers(1, 3) if before is None else st.just(before.raw_bs)
    batch = [draw(random_trees(max_nodes=9)) for _ in range(draw(size))]
    prefixes = [draw(st.integers(1, 9)) for _ in batch]
    if before is not None:
        prefixes = before.commit.seq_lens.tolist()
        bonuses = before.outcome.bonus_tokens.tolist()
        batch = [rooted(tree, bonus) for tree, bonus in zip(batch, bonuses, strict=True)]
    ends = [draw(st.integers(0, tree.num_nodes - 1)) for tree in batch]
    paths = [ancestors(tree, end)[::-1] for tree, end in zip(batch, ends, strict=True)]
    budget = max(tree.num_nodes for tree in batch) - 1 + draw(st.integers(0, 3))
    options: dict[str, Any] = {"number": number, "full": True}
    if plain:
        return clean(
            batch, prefixes, paths, budget=budget, **{**options, "backend": "flashinfer", **fixed}
        )
    options["ragged"] = draw(st.booleans())
    options["layout"] = draw(st.sampled_from(["full", "qlen"]))
    options["encoding"] = draw(st.sampled_from(["bytes", "bits"]))
    options["window"] = draw(st.sampled_from([None, 1, 2, 3, 6]))
    options["padded"] = 0 if options["ragged"] else draw(st.integers(0, 2))
    options["backend"] = draw(st.sampled_from(["triton", "flashinfer", "addressed"]))
    options["page"] = draw(st.sampled_from([None, 1, 2, 4]))
    options["counts_draft"] = draw(st.booleans())
    return clean(batch, prefixes, paths, budget=budget, **{**options, **fixed})


@st.composite
def two_steps(draw: st.DrawFn) -> tuple[VerifyStep, VerifyStep]:
    """A clean step and the one after it."""
    first = draw(clean_steps())
    return first, draw(clean_steps(number=1, before=first))

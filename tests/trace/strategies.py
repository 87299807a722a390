"""Random verify steps: every field of every Kind, within what the format allows, right or wrong in
content.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.step import (
    UNKNOWN_TOKEN,
    Commit,
    Config,
    Extras,
    Inputs,
    Kind,
    LayerCommit,
    Links,
    Outcome,
    PredictCompacted,
    Reference,
    Request,
    Source,
    TreeRecord,
    VerifyStep,
)
from engine.trace.fields import declared
from engine.trace.validate import CHOICES, OFFSETS, RANGES

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["Infinity", '-"Infinity"\\', "\u2028", "\x00", "\x85", "NaN", "été ▁"]
)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SIZES = st.integers(0, 6)


def ints(elements: st.SearchStrategy[int], size: int | None = None) -> st.SearchStrategy[Any]:
    low, high = (0, 6) if size is None else (size, size)
    return st.lists(elements, min_size=low, max_size=high).map(lambda v: np.array(v, np.int64))


def floats(size: int | None = None) -> st.SearchStrategy[Any]:
    low, high = (0, 6) if size is None else (size, size)
    return st.lists(FLOATS, min_size=low, max_size=high).map(lambda v: np.array(v, np.float64))


@st.composite
def top2(draw: st.DrawFn) -> Any:
    rows = np.full((draw(SIZES), 2, 2), np.nan)
    for row in rows:
        if draw(st.booleans()):
            row[:, 0] = draw(st.lists(st.integers(-(2**53), 2**53), min_size=2, max_size=2))
            row[:, 1] = draw(st.lists(FLOATS, min_size=2, max_size=2))
    return rows


def of_kind(name: str, kind: Kind) -> st.SearchStrategy[Any]:
    """Values of a field that is no group and not tied to another field's length."""
    bound = OFFSETS.get(name)
    elements = INT64 if bound is None else st.integers(-bound, bound)
    text = st.sampled_from(CHOICES[name]) if name in CHOICES else TEXT
    return {
        Kind.INT: st.integers(*RANGES.get(name, (-(2**40), 2**40))),
        Kind.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
        Kind.STR: text,
        Kind.BOOL: st.booleans(),
        Kind.INTS: ints(elements),
        Kind.OPTIONAL_INTS: ints(INT64 | st.just(int(UNKNOWN_TOKEN))),
        Kind.FLOATS: floats(),
        Kind.BYTES: st.binary(max_size=9).map(lambda b: np.frombuffer(b, np.uint8)),
        Kind.BOOLS: st.lists(st.booleans(), max_size=5).map(lambda v: np.array(v, np.bool_)),
        Kind.RAGGED_INTS: st.lists(ints(INT64), max_size=3).map(tuple),
        Kind.TOP2: top2(),
        Kind.STR_MAP: st.dictionaries(INT64, TEXT, max_size=3),
    }[kind]


def group(record: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A record whose fields are each known or not; ``fixed`` overrides a field's own strategy."""
    fields = {}
    for field in declared(record):
        values = fixed[field.name] if field.name in fixed else of_kind(field.name, field.kind)
        fields[field.name] = values if field.required else st.none() | values
    return st.builds(record, **fields)


def ragged(bs: int) -> st.SearchStrategy[Any]:
    return st.lists(ints(INT64), min_size=bs, max_size=bs).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    nodes, prefix = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    tree = draw(
        group(
            TreeRecord,
            parents=ints(INT64, nodes),
            tokens=ints(INT64, nodes),
            log_weights=floats(nodes),
        )
    )
    slots = ints(INT64, prefix)
    return draw(group(Request, tree=st.just(tree), prefix_len=st.just(prefix), prefix_slots=slots))


@st.composite
def verify_steps(draw: st.DrawFn) -> VerifyStep:
    bs = draw(st.integers(0, 3))
    rids = [draw(requests()) for _ in range(bs)]
    layer = group(LayerCommit, nodes=ragged(bs))
    offsets = st.integers(-(2**48), 2**48)
    small = st.integers(0, 20)
    return VerifyStep(
        requests=tuple(rids),
        step=draw(st.integers(0, 2**48)),
        rank=draw(st.integers(0, 4095)),
        world_size=draw(st.integers(1, 4096)),
        source=draw(group(Source, captured_bs=small)),
        config=draw(group(Config, budget=small)),
        inputs=draw(group(Inputs, seq_lens=ints(small))),
        links=draw(group(Links, retrieve_next_token=ragged(bs), retrieve_next_sibling=ragged(bs))),
        outcome=draw(
            group(
                Outcome,
                accept_index=ragged(bs),
                accept_length=ints(INT64, bs),
                bonus_tokens=ints(INT64, bs),
                emitted=ragged(bs),
                predict_compacted=group(PredictCompacted),
            )
        ),
        commit=draw(
            group(
                Commit,
                seq_lens=ints(offsets, bs),
                kv=st.lists(layer, max_size=3).map(tuple),
                recurrent_index=ints(INT64, bs),
                hidden_rows=ragged(bs),
            )
        ),
        reference=draw(group(Reference)),
        logits_dtype=draw(st.none() | st.sampled_from(CHOICES["logits_dtype"])),
        workbench=draw(group(Extras)),
    )

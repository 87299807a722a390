"""I3: lengths and slots of the committed tokens, in tokens and pages, with and without the draft."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import (
    BUSHY,
    CHAIN,
    MIXED,
    batch,
    causes,
    clean,
    findings,
    lengths_to_indptr,
    only,
    rooted,
    short,
    spoil,
)
from tests.factories import ints

KV, SEQ, SLOTS = "inputs.kv_indptr", "inputs.seq_lens", "inputs.kv_indices"
TOKENS = batch(full=True)  # lengths 2, 5, 3; slots 500 … 509
DRAFT = batch(full=True, counts_draft=True)  # lengths 12, 15, 13
PAGES = batch(page=2)  # pages 1, 3, 2; requests own pages from 100, 200, 300 on
DRAFT_PAGES = batch(page=2, counts_draft=True)  # pages 6, 8, 7
PADDED = batch(full=True, padded=2)  # and 1, 1
ALONE = clean([BUSHY], [5], [[0, 1, 4, 7]], budget=9, full=True)


def lengths(step: VerifyStep, *values: int) -> VerifyStep:
    return spoil(step, (KV, lengths_to_indptr(list(values))))


def second() -> VerifyStep:
    trees = [rooted(CHAIN, 92), rooted(BUSHY, 107), rooted(MIXED, 116)]
    paths = [[0, 1], [0, 2], [0, 4]]
    return clean(trees, [5, 9, 6], paths, budget=9, number=1, full=True)


# (diagnosis, request, column, expected, found, count)
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "prefix-alone": (
        lengths(DRAFT, 12, 5, 13),
        ("kv-without-draft", "r1", None, 15, 5, 1),
    ),
    "prefix-alone-in-pages": (
        lengths(DRAFT_PAGES, 6, 3, 7),
        ("kv-without-draft", "r1", None, 8, 3, 1),
    ),
    "draft-counted": (
        lengths(TOKENS, 2, 15, 3),
        ("kv-counts-draft-twice", "r1", None, 5, 15, 1),
    ),
    "draft-counted-twice": (
        lengths(DRAFT, 12, 15, 23),
        ("kv-counts-draft-twice", "r2", None, 13, 23, 1),
    ),
    "draft-counted-in-pages": (
        lengths(PAGES, 1, 8, 2),
        ("kv-counts-draft-twice", "r1", None, 3, 8, 1),
    ),
    "old-length": (spoil(TOKENS, (f"{SEQ}.1", 4)), ("seq-lens", "r1", None, 5, 4, 1)),
    "old-length-and-extents": (
        spoil(
            lengths(TOKENS, 2, 4, 3),
            (f"{SEQ}.1", 4),
            (SLOTS, ints(500, 501, 502, 503, 504, 505, 507, 508, 509)),
        ),
        ("seq-lens", "r1", None, 5, 4, 2),
    ),
    "length-of-a-batch-of-one": (spoil(ALONE, (f"{SEQ}.0", 9)), ("seq-lens", "r0", None, 5, 9, 1)),
    "one-slot": (spoil(TOKENS, (f"{SLOTS}.4", 77)), ("kv-indices", "r1", 2, 504, 77, 1)),
    "slots-of-another": (
        spoil(TOKENS, (SLOTS, ints(500, 501, 500, 501, 504, 505, 506, 507, 508, 509))),
        ("kv-indices", "r1", 0, 502, 500, 2),
    ),
    "slots-cut": (
        spoil(TOKENS, (SLOTS, ints(*range(500, 508)))),
        ("kv-indices", "r2", 1, 508, None, 2),
    ),
    "one-page": (spoil(PAGES, (f"{SLOTS}.2", 77)), ("kv-indices", "r1", 2, 201, 77, 1)),
    "one-slot-beside-the-draft": (
        spoil(DRAFT, (f"{SLOTS}.13", 77)),
        ("kv-indices", "r1", 1, 503, 77, 1),
    ),
    "one-too-many": (lengths(TOKENS, 2, 6, 3), ("kv-extent", "r1", None, 5, 6, 1)),
    "first-entry": (spoil(TOKENS, (f"{KV}.0", 1)), ("kv-extent", None, None, 0, 1, 1)),
    "entry-missing": (spoil(TOKENS, (KV, ints(0, 2, 7))), ("kv-extent", None, None, 4, 3, 1)),
    "padded-extent": (spoil(PADDED, (f"{KV}.5", 13)), ("kv-extent", None, None, 1, 2, 1)),
    "last-page": (
        spoil(PAGES, ("inputs.kv_last_page_len.1", 2)),
        ("kv-extent", "r1", None, 1, 2, 1),
    ),
    "length-and-seq-len-apart": (
        spoil(lengths(TOKENS, 2, 9, 3), (f"{SEQ}.1", 4)),
        ("kv-extent", "r1", None, 5, 9, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, request, column, expected, found, count) = CASES[name]
    assert short(findings(step)[0]) == (
        *("I3", diagnosis, "output", "fault", request),
        *(None, None, column, None, expected, found, count),
    )
    assert [f for f in findings(step)[1:] if f.consequence_of is None] == []


def test_not_what_the_step_before_committed() -> None:
    """The engine lost two committed tokens: the step before committed 9, this one goes on from 7."""
    trees = [rooted(CHAIN, 92), rooted(BUSHY, 107), rooted(MIXED, 116)]
    after = clean(trees, [5, 7, 6], [[0, 1], [0, 2], [0, 4]], budget=9, number=1, full=True)
    assert short(only(TOKENS, after)) == (
        *("I3", "seq-lens", "output", "fault", "r1"),
        *(None, None, None, None, 9, 7, 1),
    )


def test_a_wrong_record_of_the_length_is_the_step_befores_alone() -> None:
    found = causes(spoil(TOKENS, ("commit.seq_lens.1", 8)), second())
    assert [(f.step, f.check, f.diagnosis) for f in found] == [(0, "I15", "length")]


def test_later_requests_start_where_earlier_ones_end() -> None:
    first, second_ = findings(spoil(TOKENS, (f"{KV}.1", 3)))
    assert (first.request, first.found, first.consequence_of) == ("r0", 3, None)
    assert (second_.request, second_.found, second_.consequence_of) == ("r1", 4, "I3")
    third = findings(lengths(TOKENS, 2, 6, 3))[1]
    assert (third.diagnosis, third.request, third.consequence_of) == ("kv-indices", "r2", "I3")


def test_consequences_of_a_wrong_length() -> None:
    """Extents of the mask and positions that were made from it; a position off by another number stands alone."""
    made = spoil(
        TOKENS,
        (f"{SEQ}.1", 4),
        ("inputs.mask_indptr", ints(0, 120, 260, 390)),
        (
            "inputs.positions",
            ints(
                *TOKENS.inputs.positions[:10],
                *(TOKENS.inputs.positions[10:20] - 1),
                *TOKENS.inputs.positions[20:],
            ),
        ),
    )
    found = {f.check: f.consequence_of for f in findings(made)}
    assert found["I3"] is None
    assert found["I4"] == "I3"
    assert found["I10"] == "I3"
    other = spoil(TOKENS, (f"{SEQ}.1", 4), ("inputs.positions.13", 30))
    assert [f.check for f in causes(other)] == ["I3", "I10"]


def test_a_length_that_follows_from_the_row_extents() -> None:
    """The draft was counted with the width that the backend believes in."""
    step = lengths(DRAFT, 6, 9, 7)
    step = spoil(step, ("inputs.qo_indptr", ints(0, 4, 8, 12)), ("config.num_draft_tokens", 4))
    assert {f.check: f.consequence_of for f in findings(step)}["I3"] == "I1"


def test_a_mismatch_of_the_request_is_explained() -> None:
    step = spoil(TOKENS, (f"{SLOTS}.4", 77), ("reference.target_predict.16", 3))
    assert [(f.check, f.consequence_of) for f in findings(step)] == [("I3", None), ("I22", "I3")]


@pytest.mark.parametrize("step", [TOKENS, DRAFT])
def test_either_convention_where_none_is_named(step: VerifyStep) -> None:
    assert findings(spoil(step, ("config.kv_indptr_counts_draft", None))) == []

"""I16: where each row writes its keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import BUSHY, batch, causes, clean, findings, only, short, spoil
from tests.checks.test_mask_content import second_step

FULL = batch(full=True)  # prefix slots 500 …, rows write to 1000 + row, 65536 slots
SLOTS = "inputs.out_cache_loc"
DRAFT, PAGES = batch(full=True, counts_draft=True), batch(page=4, counts_draft=True)


def at(row: int, slot: int, step: VerifyStep = FULL) -> VerifyStep:
    return spoil(step, (f"{SLOTS}.{row}", slot))


# (diagnosis, request, node, row, found, count)
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "own-prefix": (at(13, 504), ("slot-in-prefix", "r1", 3, 13, 504, 1)),
    "prefix-of-another": (at(13, 501), ("slot-in-prefix", "r1", 3, 13, 501, 1)),
    "padding-row-in-a-prefix": (at(28, 500), ("slot-in-prefix", "r2", None, 28, 500, 1)),
    "twice-in-a-request": (at(13, 1012), ("slot-collision", "r1", 3, 13, 1012, 1)),
    "twice-in-the-batch": (at(23, 1002), ("slot-collision", "r2", 3, 23, 1002, 1)),
    "padding-row-over-a-node": (at(28, 1021), ("slot-collision", "r2", None, 28, 1021, 1)),
    "past-the-pool": (at(11, 65536), ("slot-range", "r1", 1, 11, 65536, 1)),
    "below-the-pool": (at(11, -1), ("slot-range", "r1", 1, 11, -1, 1)),
    "padding-slot": (at(11, 0), ("write-slots", "r1", 1, 11, 0, 1)),
    "several-kinds": (at(12, 500, at(14, 70000)), ("write-slots", "r1", 2, 12, 500, 2)),
    "read-elsewhere": (at(11, 3000, DRAFT), ("write-slots", "r1", 1, 11, 3000, 1)),
    "read-in-another-page": (at(11, 3000, PAGES), ("write-slots", "r1", 1, 11, 3000, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, request, node, row, found, count) = CASES[name]
    assert short(only(step)) == (
        *("I16", diagnosis, "output", "fault", request),
        *(node, row, None, None, "a slot of its own", found, count),
    )


def test_batch_of_one() -> None:
    step = clean([BUSHY], [5], [[0, 1, 4, 7]], budget=9, full=True)
    finding = only(at(4, 1003, step))
    assert (finding.diagnosis, finding.request, finding.where.row) == ("slot-collision", "r0", 4)


@pytest.mark.parametrize(("row", "slot"), [(29, 1028), (8, 0), (28, 40000)])
def test_padding_rows_may_share_what_nobody_keeps(row: int, slot: int) -> None:
    assert findings(at(row, slot)) == []


def test_without_prefix_slots_and_pool_only_collisions_are_seen() -> None:
    step = batch()
    assert findings(at(13, 504, step)) == []
    assert only(at(13, 1012, step)).diagnosis == "slot-collision"
    assert only(at(13, -5, step)).diagnosis == "slot-range"


def test_a_padded_request_that_writes_over_a_row() -> None:
    """Without a padding slot nothing says where it should write, but not there."""
    step = spoil(batch(full=True, padded=1), ("config.padding_slot", None), (f"{SLOTS}.35", 1014))
    finding = only(step)
    assert (finding.diagnosis, finding.where.row, finding.found) == ("slot-collision", 14, 1014)


def test_the_cache_stays_wrong() -> None:
    """Nodes 1 and 4 of the second request, both accepted, share a slot."""
    broken = at(14, 1011)
    after = spoil(
        second_step(full=True),
        ("reference.target_predict.13", 3),
        ("reference.target_predict.3", 3),
    )
    found = {f.request: f.consequence_of for f in findings(broken, after) if f.check == "I22"}
    assert found == {"r1": "I16", "r0": None}


def test_another_requests_prefix_stays_wrong() -> None:
    after = spoil(second_step(full=True), ("reference.target_predict.3", 3))
    found = {f.request: f.consequence_of for f in findings(at(13, 501), after) if f.check == "I22"}
    assert found == {"r0": "I16"}


def test_a_rejected_row_leaves_nothing() -> None:
    """Nodes 2 and 3 were not accepted."""
    after = spoil(second_step(full=True), ("reference.target_predict.13", 3))
    found = [f for f in findings(at(13, 1012), after) if f.check == "I22"]
    assert [f.consequence_of for f in found] == [None]


def test_two_requests_are_two_causes() -> None:
    assert [f.request for f in causes(at(3, 1002, at(23, 1022)))] == ["r0", "r2"]

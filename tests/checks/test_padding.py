"""I11: rows of padded requests, replayed after a fuller step."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, causes, findings, only, short, spoil
from tests.checks.test_mask_content import second_step

PADDED = batch(full=True, padded=2)  # rows 30 … 49
POSITIONS, SLOTS = "inputs.positions", "inputs.out_cache_loc"

CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "position-of-nobody": (spoil(PADDED, (f"{POSITIONS}.33", 77)), ("padding", 33, 0, 77, 1)),
    "position-of-a-live-request": (  # row 13 of the second request
        spoil(PADDED, (f"{POSITIONS}.33", 6)),
        ("stale-padding", 33, 0, 6, 1),
    ),
    "slots-of-a-live-request": (
        spoil(PADDED, *((f"{SLOTS}.{30 + n}", 1020 + n) for n in range(10))),
        ("stale-padding", 30, 0, 1020, 10),
    ),
    "slot-of-nobody": (spoil(PADDED, (f"{SLOTS}.49", 4000)), ("padding", 49, 0, 4000, 1)),
    "stale-and-not": (
        spoil(PADDED, (f"{POSITIONS}.33", 6), (f"{SLOTS}.31", 4000)),
        ("padding", 31, 0, 4000, 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, row, expected, found, count) = CASES[name]
    assert short(only(step)) == (
        *("I11", diagnosis, "output", "fault", None),
        *(None, row, None, None, expected, found, count),
    )


def test_what_the_step_before_held() -> None:
    """Its fourth request stood there; this step has three."""
    before = spoil(batch(full=True, padded=1), (f"{POSITIONS}.35", 44))
    after = spoil(second_step(full=True, padded=1), (f"{POSITIONS}.35", 44))
    found = [f for f in findings(before, after) if f.step == 1]
    assert [(f.check, f.diagnosis) for f in found] == [("I11", "stale-padding")]
    assert [f.diagnosis for f in findings(after)] == ["padding"]


def test_another_sentinel() -> None:
    step = spoil(PADDED, ("config.padding_slot", 5))
    finding = only(step)
    assert (finding.expected, finding.found, finding.count) == (5, 0, 20)


def test_without_a_sentinel_slots_say_nothing() -> None:
    step = spoil(PADDED, ("config.padding_slot", None), (f"{SLOTS}.40", 3))
    assert findings(step) == []


def test_padding_rows_of_live_requests_are_not_asked() -> None:
    assert findings(spoil(PADDED, (f"{POSITIONS}.8", 7))) == []


def test_it_stands_alone_and_spoils_what_it_overwrites() -> None:
    """A padded row writes over row 14 of the second request, which was accepted."""
    stale = spoil(batch(full=True, padded=1), (f"{SLOTS}.34", 1014))
    assert [(f.check, f.consequence_of) for f in findings(stale)] == [("I11", None), ("I16", "I11")]
    after = spoil(
        second_step(full=True),
        ("reference.target_predict.13", 3),
        ("reference.target_predict.3", 3),
    )
    found = {f.request: f.consequence_of for f in findings(stale, after) if f.check == "I22"}
    assert found == {"r1": "I11", "r0": None}
    assert [f.check for f in causes(spoil(stale, (f"{POSITIONS}.12", 50)))] == ["I10", "I11"]

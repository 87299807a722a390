"""Steps that a tap wrote, sorted to the cells that they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.isolate import recorded
from engine.isolate.recorded import Kept, Recorded
from engine.trace import open_trace

EXAMPLE = Path(__file__).parents[2] / "fixtures" / "example.jsonl"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "QUIET", 0.0)


def write(path: Path, rid: str, step: int, *, rank: int = 0, faulty: bool = False) -> None:
    line: dict[str, Any] = json.loads(EXAMPLE.read_text().splitlines()[0])
    line |= {"step": step, "rank": rank, "world_size": 2}
    line["requests"][0]["rid"] = rid
    if faulty:
        line["inputs"]["positions"][1] += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def of(tap: Recorded, rid: str, place: Path) -> Kept:
    return tap.of(rid, place, lambda: None)


def rids(path: Path) -> list[tuple[int, int, str]]:
    return [(step.step, step.rank, step.requests[0].rid) for step in open_trace(path)]


def test_each_step_belongs_to_one_cell_and_is_read_once(tmp_path: Path) -> None:
    tap, file = Recorded(tmp_path / "tap"), tmp_path / "tap" / "rank0.00000.jsonl"
    write(file, "warm.0.0", 0)
    write(file, "b7.0.0", 1)
    write(file, "b7.1.0", 2, faulty=True)
    kept = of(tap, "b7", tmp_path)
    assert kept.trace == "b7.ddtree.arrow"
    assert kept.checked is not None
    assert kept.checked.findings == {"positions": 1}
    assert rids(tmp_path / "b7.ddtree.arrow") == [(1, 0, "b7.0.0"), (2, 0, "b7.1.0")]
    write(file, "b70.0.0", 3)
    assert of(tap, "b7", tmp_path).trace is None
    write(file, "b7.0.0", 4)
    assert of(tap, "b7", tmp_path).trace == "b7.1.ddtree.arrow"  # measured again
    assert rids(tmp_path / "b7.1.ddtree.arrow") == [(4, 0, "b7.0.0")]


def test_what_an_earlier_server_wrote_belongs_to_no_cell(tmp_path: Path) -> None:
    write(tmp_path / "tap" / "rank0.00000.jsonl", "a.0.0", 0, faulty=True)
    tap = Recorded(tmp_path / "tap")
    write(tmp_path / "tap" / "again1" / "rank0.00000.jsonl", "a.0.0", 0)
    kept = of(tap, "a", tmp_path)
    assert kept.checked is not None
    assert kept.checked.findings == {}
    assert rids(tmp_path / "a.ddtree.arrow") == [(0, 0, "a.0.0")]


def test_ranks_of_a_group_are_kept_in_order_of_time(tmp_path: Path) -> None:
    tap = Recorded(tmp_path / "tap")
    for rank in (1, 0):
        for step in (0, 1):
            write(tmp_path / "tap" / f"rank{rank}.00000.jsonl", "a.0.0", step, rank=rank)
    assert of(tap, "a", tmp_path).trace == "a.ddtree.arrow"
    order = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rids(tmp_path / "a.ddtree.arrow") == [(*key, "a.0.0") for key in order]


def test_groups_of_ranks_are_checked_apart_and_the_faulty_one_is_named(tmp_path: Path) -> None:
    """Both groups count their ranks and steps from 0."""
    tap = Recorded(tmp_path / "tap")
    write(tmp_path / "tap" / "dp0" / "rank0.00000.jsonl", "a.0.0", 0)
    write(tmp_path / "tap" / "dp1" / "rank0.00000.jsonl", "a.0.1", 0, faulty=True)
    kept = of(tap, "a", tmp_path)
    assert kept.checked is not None
    assert kept.checked.findings == {"positions": 1}
    assert kept.checked.sentence is not None
    assert kept.trace == "a.1.ddtree.arrow"
    assert rids(tmp_path / "a.ddtree.arrow") == [(0, 0, "a.0.0")]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    tap, file = Recorded(tmp_path / "tap"), tmp_path / "tap" / "rank0.00000.jsonl"
    assert (of(tap, "a", tmp_path).why_not or "").startswith("the tap wrote no step of this cell")
    write(file, "a.0.0", 0)
    file.write_text(file.read_text().replace('"rank": 0', '"rank": "none"'))
    kept = of(tap, "a", tmp_path)
    assert kept.checked is None
    assert "rank0.00000.jsonl" in (kept.why_not or "")
    assert "rank" in (kept.why_not or "")

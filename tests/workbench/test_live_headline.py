"""The Live page's line says what is wrong before how much of it."""

from __future__ import annotations

from dataclasses import replace

from engine.checks.finding import Effect, Finding, Verdict
from engine.live.state import Cause, LiveState, RankRow, RankState
from workbench.live_rows import cause_table, headline_of
from workbench.verdict import Level

FOUND = Finding(
    check="I1",
    name="row-extents",
    verdict=Verdict.FAULT,
    step=7,
    rank=3,
    request=None,
    diagnosis="width-mismatch",
    message="width 8 (`num_draft_tokens`) used for 17 rows",
    effect=Effect.OUTPUT,
)


def row(rank: int | None, steps: int, faults: int = 0, name: str = "") -> RankRow:
    return RankRow(
        name or f"rank{rank}", None, "", rank, RankState.RECORDING, steps=steps, faults=faults
    )


def cause(found: Finding) -> Cause:
    return Cause(found.check, found.diagnosis, found.verdict, 5, found, found)


def state(rows: tuple[RankRow, ...], causes: tuple[Cause, ...] = (), **more: object) -> LiveState:
    return LiveState("/traces", rows, causes=causes, **more)  # type: ignore[arg-type]


def test_a_fault_is_said_first() -> None:
    line = headline_of(state((row(0, 10), row(3, 10, faults=5)), (cause(FOUND),)))
    assert line.level is Level.FAULT
    assert line.sentence == "step 7, rank 3: width 8 (`num_draft_tokens`) used for 17 rows"
    assert line.cause == "width-mismatch"
    assert line.detail == "effect: wrong text · 5 of 20 steps of 2 ranks at fault"


def test_the_others_are_counted_and_latent_ones_are_no_others() -> None:
    second = replace(FOUND, check="I8", diagnosis="parent-row")
    latent = replace(FOUND, check="I6", verdict=Verdict.LATENT)
    causes = (cause(latent), cause(FOUND), cause(second))
    line = headline_of(state((row(0, 4, faults=2),), causes, behind=True))
    assert line.finding is FOUND
    assert line.detail.endswith(
        "2 of 4 steps of 1 rank at fault so far; more is being read · 1 other cause"
    )


def test_latent_alone_is_not_nothing_wrong() -> None:
    latent = replace(FOUND, verdict=Verdict.LATENT, effect=Effect.LATENT)
    line = headline_of(state((row(0, 4),), (cause(latent),)))
    assert line.level is Level.LATENT
    assert line.sentence.startswith("step 7, rank 3: width 8")
    assert line.detail == "4 steps of 1 rank, nothing wrong yet"


def test_two_recordings_of_one_rank_are_no_two_ranks() -> None:
    rows = (row(0, 24, name="a"), row(0, 12, name="b"), row(1, 0))
    assert headline_of(state(rows)).sentence == "36 steps of 1 rank in 2 recordings, nothing wrong"


def test_problems_and_emptiness() -> None:
    assert headline_of(state((), problem="/traces: gone")).sentence == "/traces: gone"
    assert headline_of(state(())).level is Level.EMPTY


def test_tables_hold_no_markdown() -> None:
    table = cause_table(state((row(0, 1),), (cause(FOUND),)))
    assert table[0]["first"] == "width 8 (num_draft_tokens) used for 17 rows"

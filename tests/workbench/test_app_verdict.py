"""Literal verdict sentences. Run: pytest tests/workbench/test_app_verdict.py."""

from __future__ import annotations

from dataclasses import replace

from sample import broken_step, make_step

from engine.checks.context import StepContext
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.checks.registry import Report, check_trace
from workbench.causes import group_causes
from workbench.cells import cells_of
from workbench.verdict import CellPair, Level, headline, leading, sentence

CHECKS = tuple(f"check-{k}" for k in range(11))


def finding(**changes) -> Finding:
    base = Finding(
        "I8",
        "mask-content",
        Verdict.FAULT,
        3,
        0,
        "r0",
        "mask-cell",
        "row 9 sees node 4",
        effect=Effect.OUTPUT,
    )
    return replace(base, **changes)


def skipped(name: str, needs: str) -> Finding:
    return finding(
        check="I15",
        name=name,
        verdict=Verdict.SKIPPED,
        step=None,
        rank=None,
        request=None,
        message=f"{name} lacked inputs: needs {needs}",
    )


def test_the_story_names_place_cells_cause_and_effect() -> None:
    steps = [broken_step(0), broken_step(1)]
    report = check_trace(steps)
    line = headline(report, cells_of(leading(report), StepContext(steps[0])))
    assert line.level is Level.FAULT
    assert line.sentence == (
        "step 0, request r0, row 1: reads cell 38 where its own is 47: width 8 (`num_draft_tokens` = block_size) used "
        "for 17 rows: rows 1-7 read shifted cells, rows 8-16 are never written"
    )
    assert line.cause.startswith("width-mismatch: The attention backend laid out 8 rows a request")
    assert line.detail.startswith("effect: wrong text · 2 of 2 steps at fault")


def test_the_cells_are_those_that_the_address_formula_gives() -> None:
    step = broken_step(0)
    found = leading(check_trace([step]))
    row, column = found.where.row, found.where.column
    prefix, width, rows = step.requests[0].prefix_len, 8, 17
    assert cells_of(found, StepContext(step)) == CellPair(
        "r0", row * (prefix + width) + column, row * (prefix + rows) + column
    )


def test_green_counts_and_is_never_a_bare_ok() -> None:
    line = headline(Report((), (), 41, CHECKS))
    assert (line.level, line.sentence) == (Level.CLEAN, "41 steps, 11 checks, nothing wrong")
    line = headline(Report((), (skipped("kv-commit", "commit.kv or commit.seq_lens"),), 41, CHECKS))
    assert line.sentence == (
        "41 steps, 11 checks, nothing wrong; 1 check lacked inputs (kv-commit: needs commit.kv or commit.seq_lens)"
    )
    assert headline(Report((), (), 1, CHECKS[:1])).sentence == "1 step, 1 check, nothing wrong"


def test_a_clean_recording_is_green() -> None:
    line = headline(check_trace([make_step(0), make_step(2)]))
    assert line.level is Level.CLEAN
    assert line.sentence.startswith("2 steps, ")
    assert "nothing wrong" in line.sentence


def test_no_steps_is_not_green() -> None:
    line = headline(Report((), (), 0, ()))
    assert (line.level, line.sentence) == (Level.EMPTY, "no steps recorded, so nothing was checked")


def test_near_ties_and_latent_findings_are_not_faults() -> None:
    tie = finding(verdict=Verdict.NEAR_TIE)
    line = headline(Report((tie, tie), (), 2, CHECKS))
    assert (
        line.sentence == "2 steps, 11 checks, nothing wrong, 2 near-ties (numerics, nobody's fault)"
    )
    line = headline(Report((finding(verdict=Verdict.LATENT),), (), 2, CHECKS))
    assert line.level is Level.LATENT
    assert line.sentence == "step 3, request r0: row 9 sees node 4"


def test_the_line_speaks_of_a_cause_and_counts_the_others() -> None:
    follows = finding(check="I13", name="acceptance", step=1, consequence_of="I8")
    other = finding(check="I10", name="positions", diagnosis="position", step=4)
    report = Report((follows, finding(), other), (), 5, CHECKS)
    line = headline(report)
    assert line.finding == finding()
    assert line.detail == (
        "effect: wrong text · 3 of 5 steps at fault · 1 other cause · 1 finding explained by a cause"
    )


def test_rank_and_request_are_named_where_the_message_does_not() -> None:
    assert sentence(finding(rank=2)) == "step 3, rank 2, request r0: row 9 sees node 4"
    assert (
        sentence(finding(message="request r0, row 9 sees node 4"))
        == "step 3: request r0, row 9 sees node 4"
    )
    unread = CellPair("r1", None, 31)
    assert sentence(finding(request=None, where=Where(row=4)), unread) == (
        "step 3, request r1, row 4: reads no cell where its own is 31: row 9 sees node 4"
    )


def test_groups_are_ordered_by_harm_and_keep_their_consequences() -> None:
    slow = finding(
        check="I12", name="links", diagnosis="lost-child", effect=Effect.ACCEPTANCE, step=0
    )
    follows = finding(check="I13", name="acceptance", consequence_of="I8")
    later = finding(check="I13", name="acceptance", consequence_of="I8", step=7)
    chained = finding(check="I20", name="output", consequence_of="I13", step=7)
    groups = group_causes([slow, finding(), follows, finding(step=5), later, chained])
    assert [group.title for group in groups] == [
        "mask-cell · 2 steps · request r0 · wrong text",
        "lost-child · 1 step · request r0 · fewer tokens accepted",
    ]
    assert groups[0].consequences == (follows, later, chained)


def test_a_consequence_without_its_cause_is_not_lost() -> None:
    alone = finding(check="I13", name="acceptance", consequence_of="I8")
    other = finding(request="r1")
    assert {f for g in group_causes([other, alone]) for f in g.findings} == {other, alone}


def test_group_of_the_whole_step_says_all_requests() -> None:
    steps = [broken_step(0, bs=2)]
    assert (
        group_causes(check_trace(steps).findings)[0].title
        == "width-mismatch · 1 step · all requests · wrong text"
    )

"""The filter, counts and lanes of findings, without a page. Run: pytest tests/workbench/test_app_filter.py."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.finding import Effect, Finding, Verdict, Where
from workbench.causes import group_causes, kept
from workbench.figures.lane_strip import lane_strip, round_up
from workbench.finding_filter import (
    MOST_VALUES,
    FindingFilter,
    join,
    parse,
    parse_steps,
    split,
    strangers,
)
from workbench.lanes import bin_width, cause_lanes, rank_lanes
from workbench.panes.filter_bar import words_of
from workbench.tallies import by_rank, by_request, by_step
from workbench.theme import LIGHT

BASE = Finding(
    "I8",
    "mask-content",
    Verdict.FAULT,
    3,
    0,
    "r0",
    "mask-cell",
    "row 9 sees node 4",
    hint="No known pattern.",
    effect=Effect.OUTPUT,
    where=Where(node=9),
)
WHOLE = replace(BASE, check="I4", name="mask-extents", diagnosis="width-mismatch", request=None)
TIE = replace(BASE, check="I22", name="reference", diagnosis=None, verdict=Verdict.NEAR_TIE)


def live(step: int | None, rank: int | None) -> tuple[str, ...]:
    return ("r0", "r1")


@pytest.mark.parametrize(
    ("texts", "finding", "expected"),
    [
        ({}, BASE, True),
        ({"show": "fault"}, BASE, True),
        ({"show": "near-tie"}, BASE, False),
        ({"show": "%%"}, TIE, True),  # nonsense asks for nothing
        ({"checks": "I4,I8"}, BASE, True),
        ({"checks": "I4"}, BASE, False),
        ({"diagnoses": "mask-cell"}, BASE, True),
        ({"diagnoses": "reference"}, TIE, True),  # without a diagnosis a group has the check's name
        ({"effects": "output"}, BASE, True),
        ({"effects": "crash"}, BASE, False),
        ({"requests": "r0"}, BASE, True),
        ({"requests": "r1"}, BASE, False),
        ({"requests": "r1"}, WHOLE, True),  # the step held it
        ({"requests": "r2"}, WHOLE, False),
        ({"ranks": "0"}, BASE, True),
        ({"ranks": "1,2"}, BASE, False),
        ({"steps": "1, 3-9"}, BASE, True),
        ({"steps": "4-9"}, BASE, False),
        ({"steps": "9-3"}, BASE, True),
        ({"words": "NODE sees"}, BASE, True),
        ({"words": "node absent"}, BASE, False),
        ({"words": "pattern"}, BASE, True),  # of the hint
        ({"steps": "3"}, replace(BASE, step=None), False),
    ],
    ids=str,
)
def test_what_matches(texts: dict[str, str], finding: Finding, expected: bool) -> None:
    assert parse(texts)[0].matches(finding, live(3, 0)) is expected


def test_nonsense_in_the_steps_is_named_and_ignored() -> None:
    ranges, problem = parse_steps("3, x-4, 7-9,")
    assert ranges == ((3, 3), (7, 9))
    assert problem == "steps: expected numbers as 3, 5-9, found 'x-4'; it is ignored"
    assert parse_steps("٣")[0] == ()
    assert parse_steps("9" * 400)[0] == ()


@given(st.lists(st.text("a,%2C5 ☃", min_size=1), max_size=5, unique=True))
def test_any_request_id_survives_the_url(values: list[str]) -> None:
    assert list(split(join(values))) == values


def test_each_parameter_that_makes_no_sense_gets_one_sentence() -> None:
    _, problem = parse({"show": "%%", "steps": "a,b,3", "ranks": ",".join(map(str, range(900)))})
    assert problem.split(" · ") == [
        "steps: expected numbers as 3, 5-9, found 'a' and 1 more; they are ignored",
        "show: expected everything, fault, latent or near-tie, found '%%'; it is ignored",
        "ranks: expected at most 500, found 900; the first 500 are used",
    ]
    assert parse({"checks": "I4,I4,I4", "words": "a a"})[1] == ""


@pytest.mark.parametrize("name", ["checks", "diagnoses", "effects", "requests", "ranks", "steps"])
def test_many_values_are_few(name: str) -> None:
    found, problem = parse({name: ",".join(map(str, range(4000)))})
    assert len(getattr(found, name)) == MOST_VALUES
    assert problem.startswith(f"{name}: expected at most 500, found 4,000")
    assert parse({name: "7," * 4000})[1] == ""
    assert len(words_of(found)) < 300


def test_what_the_recording_does_not_hold_is_named() -> None:
    wanted, _ = parse({"checks": "I4,ZZ", "ranks": "0,x,-1", "requests": "nobody", "effects": ""})
    known = {"checks": {"I4"}, "ranks": {"0"}, "requests": {"r0"}, "effects": (), "diagnoses": ()}
    found = strangers(wanted, known)
    assert found == "nothing here has check 'ZZ', request 'nobody', rank 'x' and 1 more"
    assert strangers(parse({"checks": "I4"})[0], known) == ""


def test_the_filter_in_words() -> None:
    wanted, _ = parse({"checks": "I4", "effects": "output", "steps": "3,5-9", "show": "fault"})
    assert words_of(wanted) == "fault · check I4 · effect wrong text · steps 3, 5-9"
    assert words_of(FindingFilter()) == ""
    assert FindingFilter().is_empty


def test_a_group_keeps_what_matches_and_says_what_its_consequences_follow_from() -> None:
    follows = replace(BASE, check="I13", name="acceptance", diagnosis="x", consequence_of="I4")
    groups = group_causes([WHOLE, follows, replace(BASE, check="I10", diagnosis="position")])
    own = kept(groups, lambda f: f.check == "I4")
    assert [(g.diagnosis, len(g.findings), len(g.consequences)) for g in own] == [
        ("width-mismatch", 1, 0)
    ]
    others = kept(groups, lambda f: f.check == "I13")
    assert others[0].title == "follows from width-mismatch · 1 step · request r0 · wrong text"
    assert others[0].first is follows
    assert kept(groups, lambda f: False) == []


def test_titles_count_many_requests_and_name_ranks_where_there_are_several() -> None:
    many = [replace(BASE, request=f"r{k}", rank=k % 2) for k in range(12)]
    group = group_causes(many)[0]
    assert group.title == "mask-cell · 1 step · 12 requests · wrong text"
    assert group.title_among([0]) == group.title
    assert "· both ranks ·" in group.title_among([0, 1])
    assert "· ranks 0, 1 ·" in group.title_among([0, 1, 2])
    assert "· rank 0 ·" in group_causes(many[:1])[0].title_among([0, 1])


def test_a_circle_of_consequences_ends() -> None:
    first = replace(BASE, check="A", consequence_of="B")
    second = replace(BASE, check="B", consequence_of="A", step=4)
    third = replace(BASE, check="C", consequence_of="A", step=5)
    shown = [
        f for g in group_causes([first, second, third]) for f in (*g.findings, *g.consequences)
    ]
    assert len(shown) == 3


def test_a_finding_of_the_whole_step_counts_for_each_of_its_requests() -> None:
    own = [BASE, replace(BASE, step=4), WHOLE]
    follows = [replace(BASE, request="r1", step=7)]
    found = [
        (t.name, t.findings, t.consequences, sorted(t.steps), t.first_step)
        for t in by_request(own, follows, live)
    ]
    assert found == [("r0", 3, 0, [3, 4], 3), ("r1", 1, 1, [3, 7], 3)]
    assert [(t.name, t.findings) for t in by_step(own, follows)] == [("3", 2), ("4", 1), ("7", 0)]
    ranks = by_rank([BASE, replace(BASE, rank=3), replace(BASE, rank=3)], ())
    assert [(t.name, t.findings) for t in ranks] == [("3", 2), ("0", 1)]


def trace(figure, name: str):
    return next(part for part in figure.data if part.name == name)


def test_a_lane_a_cause_and_a_click_that_knows_its_finding() -> None:
    follows = replace(WHOLE, check="I13", consequence_of="I4", step=6)
    tie = replace(TIE, rank=1, step=2)
    groups = group_causes([WHOLE, replace(WHOLE, step=5), follows, tie])
    lanes, targets = cause_lanes(groups, (0, 9), ranks=2)
    assert [(lane.label, lane.is_fault) for lane in lanes] == [
        ("width-mismatch", True),
        ("reference", False),
    ]
    marks = [(m.start, m.stop, m.findings, m.consequences) for m in lanes[0].marks]
    assert marks == [(3, 4, 1, 0), (5, 6, 1, 0), (6, 7, 0, 1)]
    assert [targets[m.target].step for m in lanes[0].marks] == [3, 5, 6]
    assert lanes[1].marks[0].hover[0] == "reference · step 2"
    assert "on rank 1" in lanes[1].marks[0].hover
    figure = lane_strip(lanes, (0, 9), LIGHT, 3)
    faults = trace(figure, "faults")
    assert list(faults.x) == [3, 5]
    assert [targets[k] for k in faults.customdata] == [WHOLE, replace(WHOLE, step=5)]
    assert list(trace(figure, "others").x) == [2]
    assert list(trace(figure, "places").customdata) == [0, 1, 2, 3]
    assert figure.layout.annotations[0].text == "▼ step 3"
    assert faults.marker.color == LIGHT.fault


def test_a_lane_a_rank_shows_where_nothing_was_found_too() -> None:
    group = group_causes([BASE, replace(BASE, rank=2, step=5)])[0]
    lanes, _ = rank_lanes(group, (0, 9), [0, 1, 2])
    assert [(lane.label, len(lane.marks)) for lane in lanes] == [
        ("rank 0", 1),
        ("rank 1", 0),
        ("rank 2", 1),
    ]
    assert [lane.label for lane in rank_lanes(group, (0, 9), [0])[0]] == [""]
    together, _ = rank_lanes(group, (0, 9), range(200))
    assert len(together) == 1
    assert "on rank 2" in together[0].marks[1].hover


def test_token_text_in_a_hover_is_not_markup() -> None:
    hostile = replace(BASE, message="row 9 is <b>x</b> %{y}", request="<i>r</i>")
    lanes, _ = cause_lanes(group_causes([hostile]), (0, 9))
    text = trace(lane_strip(lanes, (0, 9), LIGHT), "places").hovertext[0]
    assert "<b>" not in text
    assert "<i>" not in text
    assert "%{" not in text


def test_a_hundred_thousand_findings_are_few_marks() -> None:
    steps, ranks = 10_000, range(8)
    many = [
        replace(BASE, step=step, rank=rank, request=f"r{step // 50}")
        for step in range(steps)
        for rank in ranks
    ]
    started = time.monotonic()
    group = group_causes(many)[0]
    lanes, targets = rank_lanes(group, (0, steps - 1), list(ranks))
    figure = lane_strip(lanes, (0, steps - 1), LIGHT, 77)
    by_request(group.findings, (), live)
    found, _ = parse({"steps": "100-200", "ranks": "3"})
    assert sum(found.matches(f, ()) for f in many) == 101
    assert time.monotonic() - started < 20
    assert sum(len(lane.marks) for lane in lanes) == len(targets) <= 3000
    assert len(figure.to_json()) < 2_000_000
    assert bin_width((0, steps - 1), 8) == 34
    assert sum(m.findings for lane in lanes for m in lane.marks) == len(many)


def test_ticks_are_round() -> None:
    assert [round_up(n) for n in (1, 2, 3, 7, 12, 51, 715)] == [1, 2, 5, 10, 20, 100, 1000]

"""The findings page: groups, filter in the URL, export, strip. Run: pytest tests/workbench/test_app_findings.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from app_driver import figures, open_app, params, words
from streamlit.testing.v1 import AppTest

from engine.checks.registry import check_trace
from engine.trace.findings_json import finding_to_line
from engine.trace.reader import open_trace
from workbench.finding_filter import parse
from workbench.findings_page import exported
from workbench.loading import load
from workbench.panes import cause_pane
from workbench.urlstate import FILTER

CAUSE = "cause I1 width-mismatch fault"


def labels(at: AppTest) -> list[str]:
    return [expander.label for expander in at.expander]


def export_label(at: AppTest) -> str:
    buttons = at.get("download_button")
    return next(b.proto.label for b in buttons if b.proto.label.startswith("Export"))


def lane_marks(at: AppTest) -> list[list[float]]:
    """Steps of each figure's ✖."""
    traces = (part for figure in figures(at) for part in figure["data"])
    return [list(part["x"]) for part in traces if part.get("name") == "faults"]


def test_findings_are_grouped_with_consequences_folded(traces: Path) -> None:
    at = open_app("findings", trace="broken")
    assert "width\\-mismatch · 5 steps · all requests · wrong text" in labels(at)[0]
    folded = next(label for label in labels(at) if "consequence" in label)
    assert folded == "**10 consequences** · I4 mask\\-extents 5, I22 reference 5"
    assert "They vanish when the cause is put right" not in words(at)
    assert "1 finding and 2 consequences in each of 5 steps" in words(at)
    assert lane_marks(at) == [[0, 1, 2, 3, 4]]
    assert any(label.startswith("What it means") for label in labels(at))


def test_the_first_place_of_a_cause_is_the_very_cell(traces: Path) -> None:
    at = open_app("findings", trace="pair", step=0)
    at.button(key=f"first {CAUSE}").click().run()
    assert not at.exception
    assert params(at) == {"trace": "pair", "step": "1", "rank": "0", "request": "r0", "node": "1"}
    assert "**node 1**" in words(at)  # the inspector


def test_ranks_and_requests_are_counted(traces: Path) -> None:
    at = open_app("findings", trace="ranks")
    assert "· rank 1 ·" in labels(at)[0]
    assert r"all in rank 1" in words(at)
    at = open_app("findings", trace="pair")
    counts = at.dataframe[0].value
    assert list(counts["request"]) == ["r0", "r1"]
    assert list(counts["findings"]) == [2, 2]
    assert list(counts["first step"]) == [1, 1]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"steps": "2-3"}, "1 cause · 6 of 15 findings, 4 of them consequences"),
        ({"checks": "I1"}, "1 cause · 5 of 15 findings"),
        ({"diagnoses": "unexplained-mismatch"}, "1 cause · 5 of 15 findings, 5 of them"),
        ({"requests": "r0", "ranks": "0", "effects": "output"}, "1 cause · 15 findings, 10 of"),
        ({"requests": "nobody"}, "0 of 1 causes · 0 of 15 findings"),
        ({"words": "EXTENTS written"}, "findings"),
        ({"show": "fault"}, "1 cause · 15 findings, 10 of"),
    ],
    ids=str,
)
def test_the_url_filters(query: dict[str, str], shown: str, traces: Path) -> None:
    at = open_app("findings", trace="broken", **query)
    assert not at.exception
    assert shown in words(at)
    assert {name: params(at)[name] for name in query} == query


def test_widgets_write_the_url_and_show_it(traces: Path) -> None:
    at = open_app("findings", trace="broken")
    at.multiselect(key="filter checks").set_value(["I1", "I22"]).run()
    at.text_input(key="filter steps").set_value("1-2").run()
    at.text_input(key="filter words").set_value("width").run()
    found = params(at)
    assert (found["checks"], found["steps"], found["words"]) == ("I1,I22", "1-2", "width")
    copied = open_app("findings", **found)
    assert copied.multiselect(key="filter checks").value == ["I1", "I22"]
    assert copied.text_input(key="filter steps").value == "1-2"
    assert (labels(copied), lane_marks(copied)) == (labels(at), lane_marks(at))
    assert export_label(copied) == export_label(at) == "Export 2 findings as JSON lines"


def test_the_filter_stays_on_the_way_to_another_page_and_back(traces: Path) -> None:
    at = open_app("findings", trace="broken", checks="I1")
    at.button(key=f"first {CAUSE}").click().run()
    assert params(at)["checks"] == "I1"


def test_nothing_matches_says_so_and_clears(traces: Path) -> None:
    at = open_app("findings", trace="broken", show="near-tie", steps="90-99")
    assert "Nothing matches the filter \\(near\\-tie · steps 90\\-99\\)" in words(at)
    assert not figures(at)
    at.button(key="clear filter").click().run()
    assert params(at) == {"trace": "broken"}
    assert lane_marks(at) == [[0, 1, 2, 3, 4]]


def test_a_step_range_that_makes_no_sense_is_said(traces: Path) -> None:
    at = open_app("findings", trace="broken", steps="a-b")
    assert r"found 'a\-b'; it is ignored" in words(at)
    assert lane_marks(at) == [[0, 1, 2, 3, 4]]


def test_the_export_is_what_is_shown_in_the_contracts_lines(traces: Path) -> None:
    path = traces / "broken.ddtree.arrow"
    findings = check_trace(open_trace(path)).findings
    at = open_app("findings", trace="broken")
    assert export_label(at) == f"Export {len(findings)} findings as JSON lines"
    loaded = load(path)
    everything = exported(loaded, parse({})[0])
    assert everything.splitlines() == [finding_to_line(f) for f in findings]
    some = exported(loaded, parse({"checks": "I4", "steps": "2-9"})[0]).splitlines()
    assert [(json.loads(line)["check"], json.loads(line)["step"]) for line in some] == [
        ("I4", 2),
        ("I4", 3),
        ("I4", 4),
    ]
    at = open_app("findings", trace="broken", checks="I4", steps="2-9")
    assert export_label(at) == "Export 3 findings as JSON lines"


def test_consequences_alone_are_shown_under_their_cause(traces: Path) -> None:
    at = open_app("findings", trace="broken", checks="I22")
    assert "follows from width\\-mismatch" in labels(at)[0]
    assert "They vanish when the cause is put right" in words(at)  # open, as nothing else is shown
    assert list(at.dataframe[-1].value["check"]) == ["I22 reference"] * 5


def test_long_tables_end_with_a_sentence(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_pane, "LISTED", 2)
    monkeypatch.setattr(cause_pane, "COUNTED", 2)
    monkeypatch.setattr(cause_pane, "alike", lambda tallies: "")
    at = open_app("findings", trace="broken")
    assert "3 more, export for all" in words(at)
    assert "3 more steps, export for all" in words(at)
    assert max(len(table.value) for table in at.dataframe) == 2


def test_a_click_on_a_row_goes_to_its_cell(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, gone = load(traces / "pair.ddtree.arrow"), []
    monkeypatch.setattr(cause_pane, "visit", lambda _, finding: gone.append(finding))
    shown = loaded.groups[0].findings
    for event in (None, {"selection": {"cells": []}}, {"selection": {"cells": [(99, "step")]}}):
        cause_pane.cell_picked(event, loaded, shown)
    assert not gone
    cause_pane.cell_picked({"selection": {"cells": [(1, "message")]}}, loaded, shown)
    assert gone == [shown[1]]


def test_a_clean_recording_says_what_ran(traces: Path) -> None:
    assert "Nothing was found:" in words(open_app("findings", trace="clean"))


MARKUP = "**bold** $\\frac12$ :red[x] <b>y</b> `c` [l](javascript:a) \u202e"


@pytest.mark.parametrize(
    "name", ["steps", "show", "checks", "diagnoses", "effects", "requests", "ranks", "words"]
)
def test_markup_in_a_parameter_is_text(name: str, traces: Path) -> None:
    at = open_app("findings", trace="broken", **{name: MARKUP})
    assert not at.exception
    said = words(at)
    assert r"\*\*bold\*\*" in said
    assert not [raw for raw in ("**bold", " $", " :red", "<b>y", "\u202e") if raw in said]


@pytest.mark.parametrize("name", FILTER)
def test_a_value_that_is_too_long_is_said_and_ignored(name: str, traces: Path) -> None:
    at = open_app("findings", trace="broken", **{name: "x" * 100_000})
    assert not at.exception
    said = rf"{name}\: expected at most 20,000 characters, found 100,000; it is ignored"
    assert said in words(at)
    assert "1 cause · 15 findings" in words(at)


def test_a_long_filter_survives_the_way_to_another_page(traces: Path) -> None:
    requests = ",".join(f"request-{k:040}" for k in range(300))
    at = open_app("findings", trace="broken", requests=requests)
    at.query_params.clear()  # what the browser sends after a click in the navigation
    at.run()
    assert params(at)["requests"] == requests

"""The Live page: following, pausing, what each rank says, ranks that differ, and the way to a faulty step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_driver import open_app, params
from app_driver import words as shown

from engine.trace.json_codec import dumps
from tests.factories import ints
from tests.live.recordings import PREDICT, Ranks, record

WIDTH = ("inputs.qo_indptr", ints(0, 4, 8, 12))


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    folder = tmp_path / "live"
    folder.mkdir()
    made = Ranks(folder, 2)
    made.write(0)
    return made


def words(at) -> str:
    return shown(at).replace("\\", "")


def opened(ranks: Ranks):
    at = open_app("live", live=str(ranks.folder))
    assert "Nothing is followed yet" in words(at)  # a link alone starts nothing
    return at.button(key="live follow").click().run()


def table(at, column: str) -> list:
    return at.dataframe[0].value[column].tolist()


def test_it_follows_and_pauses(ranks: Ranks, traces: Path) -> None:
    at = opened(ranks)
    assert not at.exception
    assert "2 steps of 2 ranks, nothing wrong" in words(at)
    assert table(at, "state") == ["● recording", "● recording"]
    assert "ranks 0-1 agree in 1 step" in words(at)
    at.button(key="live pause").click().run()
    ranks.write(1)
    assert "2 steps of 2 ranks" in words(at.run())
    assert "paused" in words(at)
    at.button(key="live go on").click().run()
    assert "4 steps of 2 ranks" in words(at)
    assert params(at)["live"] == str(ranks.folder)


def test_a_faulty_step_is_pinned_with_the_way_to_it(ranks: Ranks, traces: Path) -> None:
    ranks.write(1, rank1=WIDTH)
    at = opened(ranks)
    assert "1 of 4 steps of 2 ranks at fault" in words(at)
    assert "width-mismatch" in words(at)
    assert "newest faulty step" in words(at)
    links = {link.proto.label: link.proto for link in at.get("page_link")}
    assert {"Step inspector", "Mask diff"} <= set(links)
    query = links["Step inspector"].query_string
    assert "rank1.ddtree.arrow" in query
    assert "step=1" in query
    assert "rank=1" in query
    path = str(ranks.folder / "rank1.ddtree.arrow")
    inspector = open_app(trace=path, step=1, rank=1)
    assert not inspector.exception
    assert "used for 30 rows" in words(inspector) or "step 1" in words(inspector)


def test_ranks_that_differ_are_named(ranks: Ranks, traces: Path) -> None:
    ranks.write(1, rank1=PREDICT)
    at = opened(ranks)
    assert "rank 0 agrees, rank 1 differs at step 1: predict, row 19" in words(at)
    ranks.write(2)
    at.run()
    assert "differs at step 1: predict, row 19" in words(at)


def test_health_is_told_and_never_rendered(ranks: Ranks, traces: Path) -> None:
    ranks.health(0, hooks={"<b>x</b>": False}, last_error="<script>alert(1)</script>")
    at = opened(ranks)
    assert table(at, "state")[0] == "⚠ hook missing"
    assert "<b>x</b>" in table(at, "notes")[0]  # a table shows text as it is
    assert "<script>" not in words(at)
    assert not any(markdown.proto.allow_html for markdown in at.markdown)


def test_names_that_are_no_text(ranks: Ranks, traces: Path) -> None:
    bad = os.fsencode(ranks.folder) + b"/\xff\x1b.jsonl"
    fault = Path(os.fsdecode(os.fsencode(ranks.folder) + b"/\xfe.jsonl"))
    Path(os.fsdecode(bad)).write_text("x\n")
    fault.write_text(dumps(record(0, 2, 3, WIDTH)) + "\n")
    at = opened(ranks)
    assert not at.exception
    assert "1 of 3 steps of 3 ranks at fault" in words(at)
    assert "‹DCFE›.jsonl has a name that is no UTF-8: rename it" in words(at)
    assert any("‹DCFF›‹1B›.jsonl appeared" in text.value for text in at.text)


@pytest.mark.parametrize(
    ("where", "says"),
    [("", "expected a path"), ("nosuch://x", "nosuch"), ("/nowhere/at/all", "there is no such")],
)
def test_what_cannot_be_followed_is_a_sentence(where: str, says: str, traces: Path) -> None:
    at = open_app("live")
    at.text_input(key="live where").set_value(where).run()
    at.button(key="live follow").click().run()
    assert not at.exception
    assert says in words(at)

"""The Findings page shows what the command line prints. Run: pytest tests/explain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.explain import explain, keys, reports
from tests.workbench.app_driver import open_app, words
from workbench.panes.explanation import LABEL, explanation_text, report_text
from workbench.tokens import for_markdown, message

ITEM = re.compile(r"- \\\[\d+\\\] .*")


@pytest.fixture(autouse=True)
def _no_recordings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_TRACES", str(tmp_path))


def test_an_opened_cause_explains_itself_and_links_to_reports() -> None:
    at = open_app("findings", trace="story-16-4-verify-width")
    assert not at.exception
    assert LABEL in [expander.label for expander in at.expander]
    shown, found = words(at), explain("width-mismatch")
    for heading, text in found.parts:
        assert f"**{heading}.** {message(text)}" in shown
    for report in found.reports:
        for link in report.links:
            assert f"]({link})" in shown
    assert "`ddtree explain width-mismatch`" in shown


def test_a_clean_recording_explains_nothing() -> None:
    at = open_app("findings", trace="story-7-1")
    assert not at.exception
    assert "nothing wrong" in at.success[0].value
    assert LABEL not in [expander.label for expander in at.expander]


@pytest.mark.parametrize("key", keys())
def test_every_text_is_plain_markdown(key: str) -> None:
    text = explanation_text(explain(key))
    assert len(text.split("\n\n")) == 5
    assert not re.search(r"(?<!\\)[\[\]<>]", re.sub(r"`[^`]*`", "", text))


def test_every_report_is_one_item_with_all_its_links() -> None:
    for report in reports():
        item = report_text(report)
        assert ITEM.fullmatch(item)
        for link in report.links:
            assert f"]({link})" in item
        assert report.links or for_markdown(report.source) in item

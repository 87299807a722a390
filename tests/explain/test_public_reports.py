"""The table of public reports: complete by count, well-formed, and tied to checks that exist. Run:
pytest tests/explain.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from engine.explain import Grade, Kind, Report, explain, keys, reports
from engine.explain.entries import link_name

PER_CLASS = (17, 9, 10, 15, 11, 12, 17, 7, 5, 4, 4, 9, 4, 5, 8, 4)
GRADES = {  # by class: confirmed, claimed, review
    "C1": (6, 9, 2),
    "C2": (4, 1, 4),
    "C3": (2, 6, 2),
    "C4": (10, 5, 0),
    "C5": (4, 5, 2),
    "C6": (7, 4, 1),
    "C7": (7, 10, 0),
    "C8": (4, 3, 0),
    "C9": (4, 1, 0),
    "C10": (3, 1, 0),
    "C11": (1, 3, 0),
    "C12": (5, 4, 0),
    "C13": (1, 2, 1),
    "C14": (5, 0, 0),
    "C15": (3, 5, 0),
    "C16": (0, 4, 0),
}
LINK = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+/(issues/[1-9]\d*|pull/[1-9]\d*|commit/[0-9a-f]{7,40})"
)
WITHOUT_LINK = {91}  # a web page whose address is not known


def test_all_reports_are_there_in_order() -> None:
    assert [report.id for report in reports()] == list(range(1, 142))


def test_counts_by_class_and_grade() -> None:
    by_class = Counter(report.fault_class for report in reports())
    assert [by_class[f"C{i}"] for i in range(1, 17)] == list(PER_CLASS)
    assert sum(by_class.values()) == sum(PER_CLASS) == 141
    by_grade = Counter(report.grade for report in reports())
    assert [by_grade[grade] for grade in Grade] == [66, 63, 12]
    for fault_class, counts in GRADES.items():
        own = Counter(r.grade for r in reports() if r.fault_class == fault_class)
        assert tuple(own[grade] for grade in Grade) == counts, fault_class


@pytest.mark.parametrize("report", reports(), ids=lambda report: str(report.id))
def test_a_report_is_well_formed(report: Report) -> None:
    assert bool(report.links) != (report.id in WITHOUT_LINK)
    assert len(set(report.links)) == len(report.links)
    for link in report.links:
        assert LINK.fullmatch(link), link
    assert report.source
    assert report.title[0].isupper() or report.title.startswith("accept_index")
    assert 20 < len(report.title) < 140
    assert report.fix
    assert not report.title.endswith(".")
    assert f"{report.title}{report.fix}".isprintable()


@pytest.mark.parametrize("report", reports(), ids=lambda report: str(report.id))
def test_checks_and_diagnoses_of_a_report_belong_together(report: Report) -> None:
    assert report.checks
    for check in report.checks:
        found = explain(check)
        assert found.kind is Kind.CHECK
        assert report in found.reports
    for diagnosis in report.diagnoses:
        found = explain(diagnosis)
        assert set(found.checks) & set(report.checks)
        assert report in found.reports


def test_every_check_but_one_has_a_report() -> None:
    """Lost links are the one fault without a public bug report."""
    without = {
        key for key in keys() if explain(key).kind is Kind.CHECK and not explain(key).reports
    }
    assert without == {"I12"}


def test_links_by_name() -> None:
    assert link_name("https://github.com/a/b/issues/7") == "a/b#7"
    assert link_name("https://github.com/a/b.c/pull/12") == "a/b.c#12"
    assert link_name(f"https://github.com/a/b/commit/{'0123456789' * 4}") == "a/b@012345678"
    assert link_name("https://example.org/x") == "example.org/x"


def test_grades_in_words() -> None:
    assert [grade.word for grade in Grade] == ["confirmed", "claimed", "review"]

"""What a finding means, in an expander beside it: the text that ``ddtree explain`` prints."""

from __future__ import annotations

import streamlit as st

from engine.explain import Explanation, Report, explain, explain_finding
from engine.explain.entries import link_name
from workbench.tokens import for_markdown, message

LABEL = "What it means, how to confirm, how others fixed it, public reports"
LISTED = 6  # reports; a longer list scrolls
LIST_HEIGHT = 320


def draw_explanation(check: str, diagnosis: str | None) -> None:
    """Nothing where neither the diagnosis nor the check has a text."""
    found = explain_finding(check, diagnosis)
    if found is None:
        return
    with st.expander(LABEL):
        st.markdown(explanation_text(found))
        count = len(found.reports)
        st.markdown(f"**Public reports:** {count or 'none in the catalogue'}")
        if found.reports:
            with st.container(height=LIST_HEIGHT if count > LISTED else "content"):
                st.markdown("\n".join(map(report_text, found.reports)))
        st.caption(f"`ddtree explain {found.key}` prints the same")


def check_of(name: str) -> str:
    """The key of a check by its name; what is none stays as it is."""
    try:
        return explain(name).key
    except ValueError:
        return name


def explanation_text(found: Explanation) -> str:
    """Title and parts as Markdown, a paragraph each."""
    name = found.key if found.key == found.name else f"{found.key} {found.name}"
    head = f"**{for_markdown(name)}: {message(found.title)}**"
    parts = [f"**{heading}.** {message(text)}" for heading, text in found.parts]
    return "\n\n".join([head, *parts])


def report_text(report: Report) -> str:
    """One item of a list: what was reported, how well its cause is known, the fix, the links."""
    links = ", ".join(f"[{for_markdown(link_name(link))}]({link})" for link in report.links)
    return (
        f"- \\[{report.id}\\] {message(report.title)} ({report.fault_class}, {report.grade.word}; "
        f"fix: {message(report.fix)}) {links or for_markdown(report.source)}"
    )

"""One finding as text: message, hint, effect, expected and found."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.checks.finding import Finding, Verdict
from workbench.outcome import Outcome, mark
from workbench.tokens import as_code, message
from workbench.verdict import EFFECTS

SHOWN = 12  # entries of an array


def draw_finding(finding: Finding) -> None:
    """Two lines: what is wrong, and what to make of it."""
    sign = f":red[{mark(Outcome.FAULT).glyph}] " if finding.is_cause else ""
    title = f"{sign}**{finding.check} {finding.name}** · {finding.diagnosis or finding.verdict}"
    st.markdown(f"{title} · {message(finding.message)}")
    parts = [f"effect: {EFFECTS[finding.effect]}"]
    if finding.verdict is not Verdict.FAULT:
        parts.append(str(finding.verdict))
    if finding.consequence_of:
        parts.append(f"follows from {finding.consequence_of}")
    if finding.expected is not None or finding.found is not None:
        parts.append(f"found {plain(finding.found)}, should be {plain(finding.expected)}")
    if finding.hint:
        parts.append(message(finding.hint))
    st.caption(" · ".join(parts))


def plain(value: Any) -> str:
    """A recorded value, short, as code."""
    if isinstance(value, list | tuple) and len(value) > SHOWN:
        return as_code(f"[{', '.join(map(str, value[:SHOWN]))}, … {len(value)} entries]")
    return as_code(str(value)[:200])

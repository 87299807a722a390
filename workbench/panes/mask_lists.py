"""Beside a mask difference: every differing cell, the count of each row, and what the checks say."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from workbench.current import Current
from workbench.figures.mask_codes import WORDS, Code
from workbench.glossary import explain
from workbench.panes.finding_box import draw_finding
from workbench.selection import pick_node
from workbench.sides import Compared, cell_word
from workbench.stepview import StepView

MASK_CHECKS = ("I1", "I4", "I5", "I8", "I9", "I11")
LISTED = 2000  # cells of the table


def draw_lists(view: StepView, compared: Compared) -> None:
    """Both tables; a row of the first selects its node."""
    table = cell_table(view, compared)
    st.caption(
        f"differing cells: {len(table['row'])} of {len(compared.cells)} listed; a row selects its node"
    )
    st.dataframe(
        table,
        key="cells",
        height=260,
        hide_index=True,
        on_select=lambda: _pick(table),
        selection_mode="single-row",
    )
    rows, counts = np.unique(compared.cells[:, 0], return_counts=True)
    st.caption("differing cells of each row")
    st.dataframe(
        {
            "row": [int(r) for r in rows],
            "node": [view.label(int(r), 20) for r in rows],
            "cells": [int(c) for c in counts],
        },
        height=min(36 * (len(rows) + 1) + 3, 220),
        hide_index=True,
    )


def _pick(table: dict[str, list[Any]]) -> None:
    rows = st.session_state["cells"]["selection"]["rows"]
    if rows and rows[0] < len(table["local row"]):
        pick_node(int(table["local row"][rows[0]]))


def cell_table(view: StepView, compared: Compared) -> dict[str, list[Any]]:
    """Row, column, names, byte and both values of each differing cell, the first :data:`LISTED`."""
    start = compared.left.prefix_len
    table: dict[str, list[Any]] = {
        name: []
        for name in ("row", "local row", "node", "column", "sees", "byte", "left", "right", "what")
    }
    for row, column in compared.cells[:LISTED].tolist():
        other = column - start
        values = (
            view.first_row + row,
            row,
            view.label(row, 20),
            column,
            f"prefix {column}" if other < 0 else f"{other} {view.label(other, 20)}",
            int(compared.right.bytes[row, column]),
            cell_word(int(compared.left.cells[row, column])),
            cell_word(int(compared.right.cells[row, column])),
            WORDS[Code(int(compared.codes[row, column]))].partition(":")[0],
        )
        for name, value in zip(table, values, strict=True):
            table[name].append(value)
    return table


def draw_checks(now: Current) -> None:
    """What the checks say about the masks of the selected step."""
    assert now.view is not None
    said = [f for f in now.view.findings if f.check in MASK_CHECKS]
    st.markdown("**What the checks say** of the selected step", help=explain("difference"))
    for finding in said:
        draw_finding(finding)
    if not said:
        st.caption("No check of extents or masks found anything in the selected step and request.")

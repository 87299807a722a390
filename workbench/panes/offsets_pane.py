"""Offsets: where rows start in the mask buffer as used and as they should, and the sum that gave
them.
"""

from __future__ import annotations

import numpy as np
import streamlit as st

from engine.checks.context import StepContext
from workbench.figures.offsets import offsets_ruler, row_cells
from workbench.glossary import explain
from workbench.panes.picking import draw
from workbench.selection import pick_node
from workbench.stepview import StepView
from workbench.theme import Palette

SHOWN = 8  # entries of an array


def draw_offsets(view: StepView, palette: Palette, node: int | None) -> None:
    """Rulers, the selected row's cells, and the numbers."""
    st.markdown("**Offsets**", help=explain("mask_indptr"))
    if view.step.inputs.mask_indptr is None or view.step.inputs.qo_indptr is None:
        st.info(
            "The rulers need `inputs.mask_indptr` and `inputs.qo_indptr`, which the recording lacks."
        )
        return
    draw(offsets_ruler(view, palette, node), "offsets", "rows in the mask buffer", pick_node)
    if node is not None and view.well_formed:
        st.caption(f"row {view.first_row + node}, its tree cells (■ visible, □ hidden)")
        draw(row_cells(view, palette, node), "row cells", "cells of the selected row")
    st.code(arithmetic(view.context), language=None)


def arithmetic(context: StepContext) -> str:
    """The sum behind ``mask_indptr`` with the numbers of this step, used and should be."""
    inputs, geometry = context.step.inputs, context.oracle.geometry
    assert inputs.mask_indptr is not None
    assert inputs.qo_indptr is not None
    lines = []
    if len(inputs.qo_indptr) > 1 and not geometry.qlen_only:
        used, rows = int(inputs.qo_indptr[1] - inputs.qo_indptr[0]), int(geometry.q_lens[0])
        prefix = int(geometry.prefix_lens[0])
        lines = [
            "mask cells of request 0 = width * (seq_len + width)",
            f"  used       {used} * ({prefix} + {used}) = {used * (prefix + used)}",
            f"  should be  {rows} * ({prefix} + {rows}) = {rows * (prefix + rows)}",
        ]
    pairs = (
        ("mask_indptr", inputs.mask_indptr, geometry.mask_indptr),
        ("qo_indptr", inputs.qo_indptr, geometry.qo_indptr),
    )
    for name, found, expected in pairs:
        same = np.array_equal(found, expected)
        lines.append(
            f"{name:12}{_numbers(found)}" + ("" if same else f"  ✖ should be {_numbers(expected)}")
        )
    return "\n".join(lines)


def _numbers(array: np.ndarray) -> str:
    shown = ", ".join(str(int(n)) for n in array[:SHOWN])
    return f"[{shown}{', …' if len(array) > SHOWN else ''}]"

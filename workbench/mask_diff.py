"""Mask diff: two masks chosen freely, every difference in sight, every differing cell listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from engine.layout import MaskKind, MaskView
from engine.trace.errors import TraceFormatError
from workbench import traces, unusable, urlstate
from workbench.current import Current, current, reason
from workbench.figures.mask_codes import Code
from workbench.figures.mask_overview import mask_overview
from workbench.figures.mask_window import Window, mask_window
from workbench.loaded import Loaded
from workbench.panes.leak_pane import draw_leak
from workbench.panes.mask_lists import draw_checks, draw_lists
from workbench.panes.mask_pane import effective
from workbench.panes.picking import draw
from workbench.panes.xray_pane import chosen_kernel, draw_xray
from workbench.sides import (
    KINDS,
    Compared,
    Side,
    compare,
    is_readable,
    loaded_of,
    parse,
    view_of_side,
)
from workbench.stepview import StepView
from workbench.tokens import for_markdown, shorten
from workbench.xrays import measured

FIRST_WINDOW = 96  # rows and columns of the exact view unless chosen otherwise
NAMED = 60  # letters of what the URL asks for


def draw_mask_diff() -> None:
    """The whole page below the header."""
    now = current()
    if now.loaded is None or now.selection is None:
        return
    if now.view is None:
        st.info("This step has no live request, so it has no mask; choose another step.")
        return
    left, right = _sides(now)
    columns = st.columns(2, gap="medium")
    with columns[0]:
        left_view = _pick_side("left", "should be", left, now)
    with columns[1]:
        right_view = _pick_side("right", "is", right, now)
    draw_xray(now.view, _selected_side(now))
    draw_leak(now.loaded, now.view, now.palette)
    if left_view is None or right_view is None:
        return
    masks = (_mask(left_view, left.kind), _mask(right_view, right.kind))
    if masks[0] is None or masks[1] is None:
        st.info(_lacking(left if masks[0] is None else right))
        return
    rows = left_view.num_nodes if left.kind is MaskKind.INTENDED else left_view.q_len
    _draw_comparison(now, left_view, compare(*masks, rows))


def _mask(view: StepView, kind: MaskKind) -> MaskView | None:
    return measured(view, chosen_kernel()) if kind is MaskKind.MEASURED else view.mask(kind)


def _lacking(side: Side) -> str:
    """Why a side has no mask."""
    if side.kind is MaskKind.MEASURED:
        what = f"Step {side.step} was not X-rayed with the kernel {chosen_kernel()} yet"
        return f"{what}: select it above and press X-ray this step."
    return (
        f"The {side.kind} mask of step {side.step} cannot be shown: its arrays were not recorded."
    )


def _selected_side(now: Current) -> Side:
    selection = now.selection
    assert selection is not None
    assert selection.rid is not None
    return Side(MaskKind.INTENDED, selection.step, selection.rank, selection.rid)


def _sides(now: Current) -> tuple[Side, Side]:
    """Both sides from the URL; by default intended against what the kernel reads."""
    assert now.view is not None
    base = _selected_side(now)
    shown = replace(base, kind=effective(now.view) or MaskKind.INTENDED)
    return parse(urlstate.get("left"), base), parse(urlstate.get("right"), shown)


def _pick_side(name: str, meaning: str, side: Side, now: Current) -> StepView | None:
    """Widgets of one side, and the request that they choose."""
    assert now.loaded is not None
    st.markdown(f"**{name.capitalize()}** · {meaning}")
    if not is_readable(urlstate.get(name)):
        unusable.say(
            name, f"one of {', '.join(map(str, KINDS))}:step:rank:request, as built:3:0:r0"
        )
    try:
        loaded = loaded_of(side, now.loaded)
    except (TraceFormatError, OSError, ValueError) as error:
        named = shorten(side.trace or "", NAMED)
        st.warning(for_markdown(f"{named} cannot be read: {reason(error)}"))
        loaded = None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _widget(name, "mask", list(map(str, KINDS)), str(side.kind), side, 130)
        _widget(
            name,
            "recording",
            [SAME, *(e.key for e in traces.entries())],
            side.trace or SAME,
            side,
            230,
        )
        if loaded is not None and loaded.keys:
            _where_widgets(name, side, loaded)
    view = None if loaded is None else view_of_side(side, loaded)
    if loaded is not None and view is None:
        st.info(
            for_markdown(
                f"There is no request {shorten(side.rid, NAMED)} in step {side.step} "
                f"of rank {side.rank} there."
            )
        )
    return view


SAME = "as above"


def _where_widgets(name: str, side: Side, loaded: Loaded) -> None:
    if len(loaded.ranks) > 1:
        _widget(name, "rank", loaded.ranks, side.rank, side, 80)
    steps = loaded.steps_of(side.rank) if side.rank in loaded.ranks else []
    _widget(name, "step", steps, side.step, side, 90)
    if (side.step, side.rank) in loaded.keys:
        context = loaded.context(side.step, side.rank)
        rids = [request.rid for request in context.step.requests]
        _widget(name, "request", rids, side.rid, side, 110)


def _widget(name: str, field: str, options: list[Any], value: Any, side: Side, width: int) -> None:
    key = f"side {name} {field}"
    shown = options if value in options else [*options, value]
    st.session_state[key] = value
    st.selectbox(
        field, shown, key=key, width=width, on_change=_side_changed, args=(name, field, side, key)
    )


def _side_changed(name: str, field: str, side: Side, key: str) -> None:
    value = st.session_state[key]
    changed = {
        "mask": lambda: replace(side, kind=MaskKind(value)),
        "recording": lambda: replace(side, trace=None if value == SAME else value),
        "rank": lambda: replace(side, rank=value),
        "step": lambda: replace(side, step=value),
        "request": lambda: replace(side, rid=value),
    }[field]()
    urlstate.put(**{name: changed.to_text()})


def _draw_comparison(now: Current, view: StepView, compared: Compared) -> None:
    assert now.selection is not None
    st.markdown(_summary(compared))
    if compared.note:
        st.caption(compared.note)
    st.caption("everything, reduced by maximum: a block shows its worst cell")
    window = _window(compared)
    start = compared.left.prefix_len
    figure = mask_overview(compared.codes, now.palette, window, tree_start=start)
    draw(figure, "overview", "all differences of the two masks")
    _window_widgets(compared, window)
    node = now.selection.node
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.caption("exact window: + extra · − missing · grey: rows that no program covers")
        exact = mask_window(view, compared.codes, start, window, now.palette, node)
        draw(exact, "window", "every cell of the window")
    with right:
        draw_lists(view, compared)
        draw_checks(now)


def _summary(compared: Compared) -> str:
    wrong = compared.cells
    if not len(wrong):
        return (
            f"**No cell differs** in {compared.codes.size} cells: left and right are the same mask."
        )
    counts = {
        code: int((compared.codes == code).sum())
        for code in (Code.EXTRA, Code.MISSING, Code.UNCOVERED)
    }
    rows = len(np.unique(wrong[:, 0]))
    parts = f"{counts[Code.EXTRA]} extra, {counts[Code.MISSING]} missing"
    if counts[Code.UNCOVERED]:
        parts += f", {counts[Code.UNCOVERED]} missing in rows that no program covers"
    return f"**{len(wrong)} of {compared.codes.size} cells differ** in {rows} rows: {parts}"


def _window(compared: Compared) -> Window:
    """The exact view: from the URL, else the tree columns."""
    rows, columns = compared.codes.shape
    start = compared.left.prefix_len
    top, bottom = _span("rows", rows, (0, min(rows, FIRST_WINDOW)))
    left, right = _span("columns", columns, (start, min(columns, start + FIRST_WINDOW)))
    return top, bottom, left, right


def _span(name: str, size: int, default: tuple[int, int]) -> tuple[int, int]:
    """Rows or columns of the exact view; what cannot be had is said."""
    text = urlstate.get(name)
    found = span_of(text or "", size)
    if text and found is None:
        unusable.say(name, f"first-last within 0 … {size - 1}")
    return found or default


def span_of(text: str, size: int) -> tuple[int, int] | None:
    """``"3-7"`` as the half-open span 3 … 8, inside ``size``; None where it is none."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    start, stop = int(first[:9]), int(last[:9]) + 1
    return (start, min(stop, size)) if start < min(stop, size) else None


def _window_widgets(compared: Compared, window: Window) -> None:
    rows, columns = compared.codes.shape
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name, size, span in (("rows", rows, window[:2]), ("columns", columns, window[2:])):
            key = f"window {name}"
            st.session_state[key] = (span[0], span[1] - 1)
            if size > 1:
                st.slider(
                    name,
                    0,
                    size - 1,
                    key=key,
                    on_change=_window_changed,
                    args=(name, key),
                    width=330,
                )
        st.button("Tree columns", on_click=urlstate.put, kwargs={"rows": None, "columns": None})
        differing = compared.cells
        if len(differing):
            row, column = map(int, differing[0])
            near = {
                "rows": f"{max(0, row - 8)}-{min(rows, row + 9) - 1}",
                "columns": f"{max(0, column - 12)}-{min(columns, column + 13) - 1}",
            }
            st.button("Around the first difference", on_click=urlstate.put, kwargs=near)


def _window_changed(name: str, key: str) -> None:
    first, last = st.session_state[key]
    urlstate.put(**{name: f"{first}-{last}"})

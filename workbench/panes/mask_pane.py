"""The masks of the selected request, and in one line which of them agree."""

from __future__ import annotations

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from engine.layout import MaskKind
from workbench import unusable, urlstate
from workbench.figures.mask import mask_figure
from workbench.figures.mask_codes import Code, Codes, difference, is_wrong, plain
from workbench.glossary import explain
from workbench.panes.picking import draw
from workbench.selection import pick_node
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.verdict import plural

DIFFERENCE = "difference"
TABS = (str(MaskKind.INTENDED), str(MaskKind.BUILT), str(MaskKind.ADDRESSED), DIFFERENCE)
NEEDS = {
    MaskKind.BUILT: "`inputs.custom_mask`",
    MaskKind.ADDRESSED: "`inputs.custom_mask`, `qo_indptr`, `kv_indptr` and `mask_indptr`",
}


def effective(view: StepView) -> MaskKind | None:
    """The recorded mask nearest to the kernel: addressed, else built."""
    kinds = (MaskKind.ADDRESSED, MaskKind.BUILT)
    return next((kind for kind in kinds if view.mask(kind) is not None), None)


def against_intended(view: StepView, kind: MaskKind) -> Codes | None:
    """Codes of one mask against the intended one."""
    shown, intended = view.mask(kind), view.mask(MaskKind.INTENDED)
    if shown is None or intended is None:
        return None
    return difference(shown.cells, intended.cells, view.num_nodes)


def chain_text(view: StepView) -> str:
    """``intended = built ≠ addressed: the metadata is wrong, the buffer is right``."""
    built, addressed = (against_intended(view, k) for k in (MaskKind.BUILT, MaskKind.ADDRESSED))
    if built is None:
        return "intended only: the recording holds no mask to compare it with"
    unread = "" if view.oracle.reads_prefix() else _unread_prefix(view, built)
    start = 0 if view.oracle.reads_prefix() else view.prefix_len
    wrong = is_wrong(built)[:, start:]
    if addressed is None:
        return f"intended {_sign(wrong)} built; addressed not recorded{unread}"
    moved = wrong != is_wrong(addressed)[:, start:]
    text = f"intended {_sign(wrong)} built {_sign(moved)} addressed"
    if moved.any():
        builder = "and so is the builder" if wrong.any() else "the buffer is right"
        return f"{text}: the metadata is wrong, {builder}{unread}"
    return f"{text}{': the builder is wrong' if wrong.any() else ''}{unread}"


def _unread_prefix(view: StepView, built: Codes) -> str:
    count = int(is_wrong(built)[:, : view.prefix_len].sum())
    if not count:
        return ""
    return f"; {plural(count, 'wrong prefix cell')} that this backend never reads"


def _sign(differs: NDArray[np.bool_]) -> str:
    return "≠" if differs.any() else "="


def counts_text(codes: Codes, kind: str) -> str:
    """``addressed against intended: 34 differing cells in 7 rows: 28 extra (+), 6 missing (−)``."""
    wrong = is_wrong(codes)
    if not wrong.any():
        return f"{kind} against intended: no cell differs"
    counts = {
        code: int((codes == code).sum()) for code in (Code.EXTRA, Code.MISSING, Code.UNCOVERED)
    }
    parts = [
        text
        for code, text in (
            (Code.EXTRA, f"{counts[Code.EXTRA]} extra (+)"),
            (Code.MISSING, f"{counts[Code.MISSING]} missing (−)"),
            (
                Code.UNCOVERED,
                f"{counts[Code.UNCOVERED]} missing in rows that no program covers (·)",
            ),
        )
        if counts[code]
    ]
    rows = int(wrong.any(axis=1).sum())
    where = f"{plural(int(wrong.sum()), 'differing cell')} in {plural(rows, 'row')}"
    return f"{kind} against intended: {where}: {', '.join(parts)}"


def draw_mask(view: StepView, palette: Palette, node: int | None) -> None:
    """Tabs, the chosen mask, and what it says."""
    kind = effective(view)
    codes = None if kind is None else against_intended(view, kind)
    default = DIFFERENCE if codes is not None and is_wrong(codes).any() else TABS[0]
    tab = urlstate.choice("mask", TABS, default)
    opened = unusable.switch("prefix")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Mask**")
        st.segmented_control(
            "mask",
            TABS,
            label_visibility="collapsed",
            required=True,
            help=None,
            **urlstate.widget("mask", tab),
        )
        st.toggle("open prefix", **urlstate.widget("prefix", opened))
    if urlstate.get("mask", tab) not in TABS:
        unusable.say("mask", f"one of {', '.join(TABS)}")
    unusable.say_switch("prefix")
    st.caption(chain_text(view), help=explain(tab))
    if not view.well_formed:
        st.info("No mask follows from a tree with nodes that never reach the root; see Findings.")
    elif tab == DIFFERENCE:
        _draw_difference(view, palette, node, opened, kind, codes)
    else:
        _draw_one(view, palette, node, opened, MaskKind(tab))


def _draw_difference(
    view: StepView,
    palette: Palette,
    node: int | None,
    opened: bool,
    kind: MaskKind | None,
    codes: Codes | None,
) -> None:
    if kind is None or codes is None:
        st.info(f"Nothing to compare: the recording lacks {NEEDS[MaskKind.BUILT]}.")
        return
    shown, intended = view.mask(kind), view.mask(MaskKind.INTENDED)
    assert shown is not None
    figure = mask_figure(
        view, shown, codes, palette, node, open_prefix=opened, is_difference=True, beside=intended
    )
    draw(figure, "mask", counts_text(codes, kind), pick_node)
    st.caption(counts_text(codes, kind))


def _draw_one(
    view: StepView, palette: Palette, node: int | None, opened: bool, kind: MaskKind
) -> None:
    shown = view.mask(kind)
    if shown is None:
        st.info(f"The {kind} mask cannot be shown: the recording lacks {NEEDS[kind]}.")
        return
    figure = mask_figure(
        view,
        shown,
        plain(shown.cells),
        palette,
        node,
        open_prefix=opened,
        beside=view.mask(MaskKind.INTENDED),
    )
    draw(figure, "mask", f"{kind} mask; a click selects the row's node", pick_node)
    st.caption(explain(str(kind)))
